"""The strict parser: what TrlParser lets through is refused in one line with exit status 2."""

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
import yaml

from condensery.files.config import parse_args, resolved_config


@dataclass
class StageConfig:
    paths: list[Path] = field(metadata={"positional": True, "help": "input files"})
    output_dir: Path = field(metadata={"help": "where the run goes"})
    window: int = field(default=4096, metadata={"minimum": 1})
    share: float = 0.5
    rate: float | None = None
    on_error: Literal["stop", "skip"] = "stop"
    resume: bool = False
    dry_run: bool = True
    budgets: list[int] = field(default_factory=list)
    title: str | None = None
    extra: dict[str, int] | str | None = None

    def __post_init__(self) -> None:
        if self.share > 1:
            raise ValueError(f"share is {self.share}; it must be at most 1")


def parse(*argv: str) -> StageConfig:
    return parse_args(StageConfig, argv=argv, prog="condensery stage", example="condensery stage a b")


def test_command_line_words_become_typed_values() -> None:
    config = parse(
        *["a.jsonl", "b.jsonl", "--output-dir", "out", "--rate", "5e-5", "--on_error", "skip", "--resume"],
        *["--dry_run", "false", "--budgets", "1", "2", "--title", "none", "--extra", '{"x": 1}'],
    )
    assert config.paths == [Path("a.jsonl"), Path("b.jsonl")] and config.output_dir == Path("out")
    assert config.rate == 5e-5 and config.on_error == "skip" and config.resume and not config.dry_run
    assert config.budgets == [1, 2] and config.title == "none" and config.extra == {"x": 1}


@pytest.mark.parametrize("spelling", [["--config={}"], ["--config", "{}"]])
def test_config_file_is_read_and_overridden(tmp_path: Path, spelling: list[str]) -> None:
    path = tmp_path / "stage.yaml"
    path.write_text("paths: [a]\noutput_dir: out\nrate: 5e-5\nwindow: 10\nextra: {x: 1}\n")
    config = parse(*[word.format(path) for word in spelling], "--window", "20")
    assert config.rate == 5e-5 and config.window == 20 and config.extra == {"x": 1}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("windw: 3", "unknown key 'windw'; did you mean 'window'?"),
        ("window: '3'", 'window: expected a whole number, got "3"'),
        ("window: 3.5", "window: expected a whole number, got 3.5"),
        ("window: true", "window: expected a whole number, got true"),
        ("resume: maybe", 'resume: expected true or false, got "maybe"'),
        ("rate: fast", "rate: expected a number or null"),
        ("on_error: never", "on_error: expected stop or skip"),
        ("title: 5", "title: expected text or null, got 5"),
        ("budgets: [1, x]", "budgets: expected a list (each item a whole number)"),
        ("window: 1\nwindow: 2", "key given twice: window"),
        ("- a", "expected `field: value` lines"),
        ("window: 0", "window: expected at least 1, got 0"),
        ("share: 2", "share is 2.0; it must be at most 1"),
        ("rate: .nan", "rate: expected a number"),
    ],
)
def test_bad_yaml_is_one_line_with_place_and_fix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, complaint: str
) -> None:
    path = tmp_path / "stage.yaml"
    path.write_text(text + "\n")
    with pytest.raises(SystemExit) as stopped:
        parse("a", "--output_dir", "out", "--config", str(path))
    message = capsys.readouterr().err
    assert stopped.value.code == 2 and complaint in message and message.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["a"], "missing: --output_dir"),
        (["--output_dir", "out"], "missing: PATHS"),
        (
            ["a", "--output_dir", "out", "--windows", "3"],
            "--windows 3; did you mean --window?",
        ),
        (["a", "--output_dir", "out", "--window", "many"], '--window: expected a whole number, got "many"'),
        (["a", "--output_dir", "out", "--xyz"], "unrecognized arguments: --xyz; --help lists them"),
        (["a", "--config", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_bad_command_line(capsys: pytest.CaptureFixture[str], argv: list[str], complaint: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(*argv)
    message = capsys.readouterr().err
    assert stopped.value.code == 2 and complaint in message and message.count("\n") == 1


def test_merge_keys_of_yaml_may_be_given_over(tmp_path: Path) -> None:
    path = tmp_path / "stage.yaml"
    path.write_text("<<: {window: 3, rate: 0.5}\nwindow: 4\n")
    config = parse("a", "--output_dir", "out", "--config", str(path))
    assert (config.window, config.rate) == (4, 0.5)


def test_resolved_config_parses_to_the_same(tmp_path: Path) -> None:
    config = parse("a", "--output_dir", "out", "--budgets", "1", "2", "--rate", "0.5")
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(resolved_config(config)))
    assert parse("--config", str(path)) == config


def test_hugging_face_fields_are_hidden_until_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    from trl import ModelConfig

    for flag, shown in (("--help", False), ("--help_all", True)):
        with pytest.raises(SystemExit) as stopped:
            parse_args(StageConfig, ModelConfig, argv=[flag], prog="condensery stage")
        assert stopped.value.code == 0
        assert ("--lora_alpha" in capsys.readouterr().out) is shown


def test_parser_does_not_import_torch() -> None:
    code = (
        "import sys, condensery.files.config; assert not {'torch', 'transformers', 'trl'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
