from pathlib import Path

from modeling.generation import generate
from modeling.loading import load_model_and_tokenizer


def test_batched_generation_equals_one_by_one_in_the_order_of_the_prompts(tiny_llama: Path) -> None:
    model, tokenizer = load_model_and_tokenizer(str(tiny_llama))
    prompts = [[{"role": "user", "content": f"word{number} " * (1 + 5 * number)}] for number in range(4)]
    together = generate(model, tokenizer, prompts, max_new_tokens=6, batch_size=4)
    single = [generate(model, tokenizer, [prompt], max_new_tokens=6)[0] for prompt in prompts]
    assert together == single
    assert all(answer.finish_reason == "length" and answer.num_tokens == 6 for answer in together)


def test_stop_token_ends_an_answer(tiny_llama: Path) -> None:
    """The token that a random model writes third is declared its stop token."""
    model, tokenizer = load_model_and_tokenizer(str(tiny_llama))
    prompt = [{"role": "user", "content": "hello"}]
    ids = model.generate(
        **tokenizer.apply_chat_template([prompt], add_generation_prompt=True, return_tensors="pt"),
        max_new_tokens=3,
        min_new_tokens=3,
        do_sample=False,
    )[0, -3:].tolist()
    model.generation_config.eos_token_id = ids[2]
    [answer] = generate(model, tokenizer, [prompt], max_new_tokens=10)
    expected = ids.index(ids[2]) + 1
    assert answer.finish_reason == "stop" and answer.num_tokens == expected


def test_a_mixture_that_was_trained_to_balance_its_routers_generates(tiny_qwen3_moe: Path) -> None:
    """Its config says so ever after; transformers fails on that where a batch is padded."""
    model, tokenizer = load_model_and_tokenizer(str(tiny_qwen3_moe))
    prompts = [[{"role": "user", "content": "hello"}], [{"role": "user", "content": "hello, hello"}]]
    before = generate(model, tokenizer, prompts, max_new_tokens=4)
    model.config.output_router_logits = True
    assert generate(model, tokenizer, prompts, max_new_tokens=4) == before
