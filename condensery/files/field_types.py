"""Turn what stands in a YAML file or on a command line into the type a dataclass field declares.

YAML already has types, so there the value is checked (`convert_value`); a command line has only text, which
is read as the first type of the field that fits (`convert_text`). Both raise ValueError with what was
expected and what came.
"""

import enum
import json
import math
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

NoneType = type(None)
TRUE_WORDS, FALSE_WORDS = ("true", "yes", "1"), ("false", "no", "0")
NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a path"}


def options(hint: Any) -> list[Any]:
    """The types a field accepts: `int | None` -> [int, NoneType]."""
    return list(get_args(hint)) if get_origin(hint) in (Union, types.UnionType) else [hint]


def is_list(hint: Any) -> bool:
    return any(get_origin(option) is list for option in options(hint))


def is_bool(hint: Any) -> bool:
    return bool in options(hint) and str not in options(hint)


def choices(option: Any) -> list[Any]:
    """The values of a Literal or an Enum, else an empty list."""
    if get_origin(option) is Literal:
        return list(get_args(option))
    if isinstance(option, type) and issubclass(option, enum.Enum):
        return [member.value for member in option]
    return []


def describe(hint: Any) -> str:
    """What the field accepts, in words for a message: `a whole number or null`."""
    words: list[str] = []
    for option in options(hint):
        if choices(option):
            words += [str(choice) for choice in choices(option)]
        elif get_origin(option) is list:
            words.append(f"a list (each item {describe(get_args(option)[0])})")
        elif option is dict or get_origin(option) is dict:
            words.append("a mapping")
        else:
            words.append("null" if option is NoneType else NAMES.get(option, str(option)))
    if any(choices(option) for option in options(hint)):  # Hugging Face writes `SchedulerType | str`
        words = [word for word in words if word != "text"]
    return " or ".join(dict.fromkeys(words))


def convert_text(text: str | list[str], hint: Any) -> Any:
    """Read a command-line word (or the words of a list) as the field's type."""
    if text == ["null"] and NoneType in options(hint):
        return None
    if isinstance(text, list) and is_list(hint):
        item_hint = next(get_args(option)[0] for option in options(hint) if get_origin(option) is list)
        words = text[0].split(",") if len(text) == 1 and item_hint in (int, float) else text
        return [convert_text(word, item_hint) for word in words]
    word = text[0] if isinstance(text, list) else text
    return convert_value(_typed_word(word, hint), hint)


def _typed_word(word: str, hint: Any) -> Any:
    accepted, low = options(hint), word.lower()
    if NoneType in accepted and (low == "null" or (low == "none" and str not in accepted)):
        return None
    if bool in accepted and low in TRUE_WORDS + FALSE_WORDS:
        return low in TRUE_WORDS
    if int in accepted and word.lstrip("+-").isdecimal():
        return int(word)
    if word.startswith("{") and any(option is dict or get_origin(option) is dict for option in accepted):
        return json.loads(word)
    for choice in (choice for option in accepted for choice in choices(option)):
        if str(choice) == word:
            return choice
    return word


def convert_value(value: Any, hint: Any) -> Any:
    """Check a YAML value against the field's type; numbers and paths are brought to it, no other is cast."""
    accepted = options(hint)
    has_choices = any(choices(option) for option in accepted)
    for option in accepted:
        if has_choices and option is str:
            continue
        fits, converted = _match(value, option)
        if fits:
            return converted
    hint_text = "; quote it, or YAML reads it as true or false" if isinstance(value, bool) else ""
    raise ValueError(f"expected {describe(hint)}, got {_show(value)}{hint_text}")


def accepts(value: Any, hint: Any) -> bool:
    return any(_match(value, option)[0] for option in options(hint))


def _match(value: Any, option: Any) -> tuple[bool, Any]:
    """(whether the value is of this type, the value in this type)."""
    if option is Any:
        return True, value
    if choices(option):
        return _is_one_of(value, choices(option)), value
    if get_origin(option) is list:
        return _match_list(value, get_args(option)[0])
    if option is dict or get_origin(option) is dict:
        return isinstance(value, dict), value
    if option is float:
        return _match_float(value)
    if option is int:
        return isinstance(value, int) and not isinstance(value, bool), value
    if option is Path:
        return isinstance(value, str), Path(value) if isinstance(value, str) else value
    return isinstance(option, type) and isinstance(value, option), value


def _is_one_of(value: Any, accepted: list[Any]) -> bool:
    """Equality that keeps True apart from 1."""
    return any(type(value) is type(choice) and value == choice for choice in accepted)


def _match_list(value: Any, item_hint: Any) -> tuple[bool, Any]:
    if not isinstance(value, list):
        return False, value
    matches = [[_match(item, option) for option in options(item_hint)] for item in value]
    kept = [next((converted for fits, converted in tries if fits), None) for tries in matches]
    return all(any(fits for fits, _ in tries) for tries in matches), kept


def _match_float(value: Any) -> tuple[bool, Any]:
    """YAML 1.1 reads `5e-5` as text (it wants `5.0e-5`); people write it, and it can only mean the number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False, value
    try:
        number = float(value)
    except ValueError:
        return False, value
    return math.isfinite(number), number


def _show(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def plain(value: Any) -> Any:
    """The YAML form of a field's value."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
