import pytest

from modeling.batches import padding_share, plan_batches


def test_accumulation_follows_from_the_global_batch() -> None:
    plan = plan_batches(64, per_device=2, num_processes=8, lengths=[10] * 9000, num_epochs=2, max_steps=-1)
    assert plan.gradient_accumulation_steps == 4 and plan.num_steps == 2 * 141


def test_indivisible_batches_name_what_would_divide() -> None:
    with pytest.raises(ValueError, match=r"may be one of 1, 2, 4$"):
        plan_batches(8, per_device=3, num_processes=2, lengths=[10] * 10, num_epochs=1, max_steps=-1)


def test_processes_that_do_not_divide_the_batch_are_named() -> None:
    with pytest.raises(ValueError, match="multiple of the 3 processes"):
        plan_batches(8, per_device=1, num_processes=3, lengths=[10] * 10, num_epochs=1, max_steps=-1)


def test_padding_is_measured_on_batches() -> None:
    assert padding_share([5] * 10, per_device=4) == 0 == padding_share([1, 9, 3], per_device=1)
    assert padding_share([2, 10], per_device=2) == 1 - 12 / 20
