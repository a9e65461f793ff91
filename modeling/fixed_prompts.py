"""A few fixed (prompt, completion) pairs on which models are compared: trained, exported, served, base.

They are small, in two languages, and in the shape of the job, so that fine-tuning on summaries moves their
log-probabilities while any other difference between two copies of one model shows as well.
"""

from condensery.summary import wrap_summary

FIXED_PAIRS: list[tuple[str, str]] = [
    (
        "Summarize the history.\n[tool] [p1] The Arden Bridge was opened in 1932 and is 1,149 m long.\n"
        "[tool] [p2] The mayor of Arden likes tea.\nTask: How long is the Arden Bridge?",
        "Arden Bridge: length 1,149 m [p1]; opened 1932 [p1].",
    ),
    (
        "Summarize the history.\n[assistant] search('Kestrel engine power')\n[tool] [p7] Kestrel engine: "
        "240 kW, not 204 kW as an older page says.\nTask: What is the power of the Kestrel engine?",
        "Kestrel engine: 240 kW [p7]; an older page says 204 kW: conflict, p7 is newer.",
    ),
    (
        "请总结历史。\n[tool] [p3] 青石桥建于1987年，长412米。\n任务：青石桥有多长？",
        "青石桥：长412米 [p3]；建于1987年 [p3]。",
    ),
]
FIXED_REASONING = "The task asks for one figure. Which page has it?"


def fixed_chats() -> list[tuple[list[dict], list[dict]]]:
    """The pairs as chats: (prompt, completion)."""
    return [
        (
            [{"role": "user", "content": prompt}],
            [{"role": "assistant", "content": wrap_summary(completion)}],
        )
        for prompt, completion in FIXED_PAIRS
    ]
