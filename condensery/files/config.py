"""One strict way to configure every command: dataclasses, a flat YAML file, and `--field value`.

    parse_args(RecordConfig, prog="condensery record", example="condensery record --questions q.jsonl")
    parse_args(SFTArguments, SFTConfig, ModelConfig, prog="condensery sft")    # -> a tuple, in this order

Command line over `--config FILE` over the field's default. It accepts what TRL's `TrlParser` accepts, and
refuses what that lets through: an unknown key, a key given twice, a value that is not of the field's type.
Every complaint is one line on stderr and exit status 2. A field with `metadata={"positional": True}` is given
by place.

Nothing heavy is imported here: stages without a model use it too. Fields of Hugging Face's dataclasses work
like ours but all except the commonest stay out of `--help`; `--help_all` lists them.
"""

import dataclasses
import difflib
import inspect
import sys
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_type_hints, overload

import yaml

from condensery.files import field_types
from condensery.files.arguments import FOREIGN_PACKAGES, Field, OneLineParser, build_parser, option_name

Config = TypeVar("Config")


@overload
def parse_args(
    config_class: type[Config],
    *,
    argv: Sequence[str] | None = None,
    prog: str | None = None,
    description: str | None = None,
    example: str | None = None,
) -> Config: ...
@overload
def parse_args(
    config_class: type[Any],
    *more_classes: type[Any],
    argv: Sequence[str] | None = None,
    prog: str | None = None,
    description: str | None = None,
    example: str | None = None,
) -> tuple[Any, ...]: ...
def parse_args(
    config_class: Any,
    *more_classes: Any,
    argv: Sequence[str] | None = None,
    prog: str | None = None,
    description: str | None = None,
    example: str | None = None,
) -> Any:
    """Fill the dataclasses from `argv` (default: sys.argv) and the YAML file it may name.

    Returns the instance, or a tuple of them if several classes are given. Wrong input ends the process with
    status 2; a ValueError raised by a `__post_init__` is reported the same way. A field's metadata may hold
    `help`, `choices` and `minimum`.
    """
    config_classes = (config_class, *more_classes)
    words = list(sys.argv[1:] if argv is None else argv)
    fields = _collect_fields(config_classes)
    parser = build_parser(config_classes, fields, prog, description, example, show_all="--help_all" in words)
    given = vars(parser.parse_args(words))
    config_path = given.pop("config", None)
    values = _read_yaml(parser, Path(config_path), fields) if config_path else {}
    # After the file, so that the command line wins.
    for name, text in given.items():
        values[name] = _convert(
            parser, f"{option_name(fields[name])}: ", field_types.convert_text, text, fields[name]
        )
    instances = tuple(_fill(parser, each, values, fields) for each in config_classes)
    return instances[0] if len(instances) == 1 else instances


def fail(prog: str, message: object, status: int = 2) -> NoReturn:
    """End a command: one line on stderr per problem. Status 2 at first contact with bad input, 1 later on."""
    sys.stderr.write(f"{prog}: error: {message}\n")
    sys.exit(status)


def resolved_config(*instances: Any) -> dict[str, Any]:
    """What `--config` needs to repeat a run: all fields of ours, and Hugging Face's where they were changed.

    (Theirs are some 150, and their own `__post_init__` turns some into objects that no file can hold.)
    """
    resolved: dict[str, Any] = {}
    for instance in instances:
        hints = get_type_hints(type(instance))
        for field in (field for field in dataclasses.fields(instance) if field.init):
            value = field_types.plain(vars(instance)[field.name])
            ours = _is_ours(type(instance), field.name)
            if ours or (
                value != field_types.plain(field.default) and field_types.accepts(value, hints[field.name])
            ):
                resolved[field.name] = value
    return resolved


class _StrictLoader(yaml.SafeLoader):
    """PyYAML keeps the last of two equal keys without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        merge = "tag:yaml.org,2002:merge"  # `<<: *defaults` may be given over
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != merge]  # type: ignore[no-untyped-call]
        repeated = sorted({str(key) for key in keys if keys.count(key) > 1})
        if repeated:
            raise yaml.YAMLError(f"key given twice: {', '.join(repeated)}")
        return super().construct_mapping(node, deep)


def _collect_fields(config_classes: Sequence[type[Any]]) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    for config_class in config_classes:
        hints = get_type_hints(config_class)
        for field in dataclasses.fields(config_class):
            if not field.init:
                continue
            assert field.name not in fields and field.name != "config", f"two fields named {field.name}"
            fields[field.name] = Field(
                name=field.name,
                hint=hints[field.name],
                help=field.metadata.get("help", ""),
                choices=field.metadata.get("choices"),
                minimum=field.metadata.get("minimum"),
                positional=field.metadata.get("positional", False),
                ours=_is_ours(config_class, field.name),
                default=field.default,
                required=_is_required(field),
            )
    return fields


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _is_ours(config_class: type[Any], name: str) -> bool:
    """Whether one of our classes declares the field (a subclass of ours may add fields to one of theirs)."""
    owner = next(base for base in config_class.__mro__ if name in inspect.get_annotations(base))
    return owner.__module__.split(".")[0] not in FOREIGN_PACKAGES


def _read_yaml(parser: OneLineParser, path: Path, fields: dict[str, Field]) -> dict[str, Any]:
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        parser.error(f"--config {path}: {error}")
    except RecursionError:
        parser.error(f"--config {path}: nested too deep; expected `field: value` lines")
    if not isinstance(content, dict):
        parser.error(f"--config {path}: expected `field: value` lines, found {type(content).__name__}")
    values = {}
    for key, value in content.items():
        if key not in fields:
            close = difflib.get_close_matches(str(key), fields, n=1)
            parser.error(f"{path}: unknown key {key!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
        values[key] = _convert(parser, f"{path}: {key}: ", field_types.convert_value, value, fields[key])
    return values


def _convert(parser: OneLineParser, place: str, convert: Any, value: Any, field: Field) -> Any:
    try:
        converted = convert(value, field.hint)
    except ValueError as error:
        parser.error(f"{place}{error}")
    if field.choices and converted not in field.choices:
        parser.error(f"{place}expected one of {', '.join(map(str, field.choices))}, got {value!r}")
    if field.minimum is not None and converted is not None and converted < field.minimum:
        parser.error(f"{place}expected at least {field.minimum}, got {converted}")
    return converted


def _fill(
    parser: OneLineParser, config_class: type[Any], values: dict[str, Any], fields: dict[str, Field]
) -> Any:
    names = {field.name: field for field in dataclasses.fields(config_class) if field.init}
    # An empty list of inputs is none.
    missing = [
        name for name, field in names.items() if _is_required(field) and values.get(name) in (None, [])
    ]
    if missing:
        wanted = ", ".join(option_name(fields[name]) for name in missing)
        parser.error(f"missing: {wanted} (on the command line or in --config; see --help)")
    try:
        return config_class(**{name: values[name] for name in names if name in values})
    # Of Hugging Face's: a field that needs an absent package, or names a file that is not there.
    except (ValueError, ImportError, OSError) as error:
        parser.error(str(error))
