"""Contexts from real agent logs: nothing lost between blocks, no call without its result, sources balanced.

The folder is named by CONDENSERY_DATA (default `../shared/data` beside the repository); it is not part of it.
"""

import json
import os
from pathlib import Path

import pytest

from condensery.files.jsonl import read_records, write_jsonl
from condensery.message import closed_positions
from condensery.prompt import render_history
from data_synthesis.importers.log_file import read_log
from reconstruct.blocks import join_blocks
from reconstruct.instance import Instance
from reconstruct.instances import main
from reconstruct.masks import marker, masked_history

DATA = Path(os.environ.get("CONDENSERY_DATA", Path(__file__).parents[3] / "shared/data"))
pytestmark = [
    pytest.mark.real_data,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"no agent logs in {DATA} (set CONDENSERY_DATA)"),
]
LOGS = {
    "web": "webdancer/sample_traj.jsonl",
    "service": "tau_bench/gpt-4o-airline.json",
    "code": "swe_smith/ft_xml_example.jsonl",
}


def test_search_service_and_coding_logs(tmp_path: Path) -> None:
    for name, path in LOGS.items():
        (tmp_path / name).mkdir()
        runs = (run.model_dump() for run in read_log(DATA / path).trajectories)
        write_jsonl(tmp_path / name / "trajectories.jsonl", runs)
    words = [*(str(tmp_path / name) for name in LOGS), "--output_dir", str(tmp_path / "out"), "--limit", "60"]
    words += ["--held_out", "0"]
    assert main([*words, "--context_tokens", "4096", "6144", "--on_error", "skip"]) == 0
    found = list(read_records(tmp_path / "out/instances.jsonl", Instance))
    for each in found:
        assert join_blocks(each.blocks) == render_history(each.compaction.expired)
        assert closed_positions(each.compaction.expired)[-1] == len(each.compaction.expired)
        assert len(each.blocks) >= 8
        for mask in each.masks:
            shown = masked_history(each.blocks, mask)
            assert shown.count("<missing") == len(mask) and marker(len(mask)) in shown
    card = json.loads((tmp_path / "out/data_card.json").read_text())
    assert card["instances"] == 60 and card["funnel"]["trajectories"] == 403
    assert card["funnel"]["contexts"] == 60 + sum(card["unused"].values())
    assert {"result", "constraint", "decision", "plan", "text"} <= card["block_kinds"].keys()
    counts = {Path(group["source"]).name: 0 for group in card["groups"]}
    for group in card["groups"]:
        counts[Path(group["source"]).name] += group["instances"]
    assert abs(counts["web"] - counts["service"]) <= 1 and counts["code"] <= 6
