"""The command line of a set of dataclass fields: what argparse needs to know, and what `--help` shows."""

import argparse
import dataclasses
import difflib
from collections.abc import Sequence
from typing import Any, NoReturn

from condensery.files import field_types

FOREIGN_PACKAGES = ("transformers", "trl", "accelerate", "peft")


@dataclasses.dataclass(frozen=True)
class Field:
    name: str
    hint: Any
    help: str
    choices: list[Any] | None
    minimum: int | None
    positional: bool
    ours: bool
    default: Any
    required: bool


# Of Hugging Face's fields, those that almost every run sets: --help lists them with ours.
COMMON = {
    *("output_dir", "model_name_or_path", "teacher_model_name_or_path", "max_length"),
    *("max_completion_length", "num_generations", "per_device_train_batch_size", "num_train_epochs"),
    *("max_steps", "learning_rate", "use_peft", "lora_target_modules", "lora_target_parameters"),
    *("gradient_checkpointing", "bf16", "dtype", "eval_strategy", "save_steps", "report_to", "seed"),
}


class OneLineParser(argparse.ArgumentParser):
    """argparse whose errors are one line: a usage of 200 fields would hide the message."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """A flag that is unknown is answered with the nearest one."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            flags = [flag for action in self._actions for flag in action.option_strings]
            close = difflib.get_close_matches(unknown[0].partition("=")[0], flags, n=1)
            advice = f"; did you mean {close[0]}?" if close else "; --help lists them"
            self.error(f"unrecognized arguments: {' '.join(unknown)}{advice}")
        return found

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())}\n")


def build_parser(
    config_classes: Sequence[type[Any]],
    fields: dict[str, Field],
    prog: str | None,
    description: str | None,
    example: str | None,
    show_all: bool,
) -> OneLineParser:
    places = [field.name.upper() for field in fields.values() if field.positional]
    foreign = [cls.__name__ for cls in config_classes if cls.__module__.split(".")[0] in FOREIGN_PACKAGES]
    epilog = [f"example:\n  {example}"] if example else []
    if foreign and not show_all:
        epilog.append(f"All fields of {', '.join(foreign)} work, with - or _; --help_all lists them.")
    parser = OneLineParser(
        prog=prog,
        description=description,
        epilog="\n\n".join(epilog),
        usage=" ".join(["%(prog)s", *places, "[--config FILE.yaml] [--field value ...]"]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE.yaml", help="flat YAML file with any of the fields")
    if foreign:
        parser.add_argument(
            "--help_all", action="help", help="also list the fields of Hugging Face's classes"
        )
    for field in fields.values():
        _add_argument(parser, field, visible=field.ours or show_all or field.name in COMMON)
    return parser


def _add_argument(parser: OneLineParser, field: Field, visible: bool) -> None:
    help_text = _help(field) if visible else argparse.SUPPRESS
    many = field_types.is_list(field.hint)
    if field.positional:
        nargs = (
            "*" if many else "?"
        )  # a config file may name it: what is missing is found after both are read
        parser.add_argument(field.name, nargs=nargs, metavar=field.name.upper(), help=help_text)
        return
    kind: dict[str, Any] = {"dest": field.name, "nargs": "+" if many else None, "metavar": _metavar(field)}
    if field_types.is_bool(field.hint):
        kind |= {"nargs": "?", "const": "true", "metavar": "BOOL"}
    parser.add_argument(f"--{field.name}", help=help_text, **kind)
    if "_" in field.name:  # the other spelling works and stays out of the help
        parser.add_argument(f"--{field.name.replace('_', '-')}", help=argparse.SUPPRESS, **kind)


def _metavar(field: Field) -> str:
    choices = field.choices or [
        c for option in field_types.options(field.hint) for c in field_types.choices(option)
    ]
    return "{" + ",".join(str(choice) for choice in choices) + "}" if choices else "VALUE"


def _help(field: Field) -> str:
    ending = " (required)" if field.required else ""
    if field.default not in (dataclasses.MISSING, None, ""):
        ending = f" (default: {field_types.plain(field.default)})"
    return (field.help + ending).replace("%", "%%")


def option_name(field: Field) -> str:
    return field.name.upper() if field.positional else f"--{field.name}"
