"""What a translator is opened with: models that languages choose, and paths that mean the same in every folder."""

from __future__ import annotations

import os
from typing import Any, Callable, Mapping, Sequence, Union

from ._options import StrPath
from ._peregrine import models_between

Paths = Union[StrPath, Sequence[StrPath], None]


def choose_models(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the models of a folder by their paths: one from a language to another, or two in a row."""
    settings = dict(settings)
    folder = settings.pop("models", None)
    if folder is None:
        return settings
    from_, to = settings.get("from_"), settings.get("to")
    if from_ is None or to is None:
        raise ValueError("models: from_ and to are needed to choose one")
    if settings.get("model") is not None or settings.get("then") is not None:
        raise ValueError("models: expected instead of model and then")
    settings["model"], *second = models_between(absolute(folder), from_, to)
    settings["then"] = second[0] if second else None
    return settings


def absolute(path: StrPath) -> str:
    """A path that means the same in every folder."""
    return os.path.abspath(os.fspath(path))


def map_paths(
    settings: Mapping[str, Any], options: Mapping[str, Any], change: Callable[[StrPath], str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings and options with all paths in them changed."""

    def one(value: Any) -> Any:
        return change(value) if isinstance(value, (str, os.PathLike)) else value

    settings, options = dict(settings), dict(options)
    for name in ("model", "then", "config", "calibration", "vocab"):
        value = settings.get(name)
        if value is not None:
            settings[name] = [one(path) for path in value] if isinstance(value, (list, tuple)) else one(value)
    shortlist = settings.get("shortlist")
    if shortlist is not None and shortlist not in ("auto", "off", "vmap"):
        first, *numbers = shortlist if isinstance(shortlist, (list, tuple)) else [shortlist]
        settings["shortlist"] = [one(first), *numbers]
    for name in ("glossary", "replace_unknown"):
        if name in options:
            options[name] = one(options[name])
    return settings, options


def many(paths: Paths) -> list[str]:
    """Paths, however many were given."""
    given = [] if paths is None else [paths] if isinstance(paths, (str, os.PathLike)) else paths
    return [absolute(path) for path in given]


def shortlist(given: StrPath | Sequence[StrPath | float] | None) -> list[str]:
    """A shortlist as the engine wants it: a name, or a path and numbers."""
    if given is None:
        return []
    first, *numbers = [given] if isinstance(given, (str, os.PathLike)) else list(given)
    name = first if isinstance(first, str) and first in ("auto", "off", "vmap") else absolute(first)  # type: ignore[arg-type]
    return [name, *map(str, numbers)]
