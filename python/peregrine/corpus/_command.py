"""The command ``peregrine corpus``."""

from __future__ import annotations

import argparse
import ast
import inspect
import os
import signal
import sys
from types import FrameType
from typing import Any, Iterator, NamedTuple, NoReturn, Sequence, cast

from .. import _options
from .._options import Options
from .._peregrine import Error
from ._files import FORMATS
from ._local import run
from ._plan import RECORD, Plan
from ._run import Report
from ._show import Show, ShowJson

_DESCRIPTION = f"""\
Translate a corpus of many files: text, JSON lines, Parquet.

Each file of SOURCE becomes one file of OUTPUT, with the same path below it. A file appears whole or not at all. A run that was
stopped or killed is gone on with by the same command: what is there is not done again. {RECORD} in OUTPUT says how its files
were made, and a run that would make others is refused."""

_EXAMPLES = """\
examples:
  peregrine corpus news/ news-pt/                                        lines of text, the built-in model, all cores
  peregrine corpus crawl/ crawl-pt/ -m DIR --column body --keep id,url   Parquet or JSON lines, some columns
  peregrine corpus crawl/ crawl-pt/ -m DIR --format jsonl --dedupe       repeated lines once, JSON lines out
  peregrine corpus crawl/ crawl-pt/ -m DIR --engine ray --num-cpus 8     on a cluster of Ray

exit codes: 0 all partitions are there; 2 some failed, or the plan is wrong; 130 and 143 stopped by Ctrl-C or SIGTERM."""


def main(arguments: Sequence[str]) -> int:
    """Runs the command. Its exit code."""
    given = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _terminated)
    shown: Show | ShowJson = ShowJson() if given.json else Show()
    tell = None if given.quiet else shown
    try:
        plan = _plan(given)
        report = _carry_out(plan, given, tell)
    except (Error, TypeError, ValueError) as error:
        print(f"peregrine: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        code = stop.args[0] if stop.args else 130
        print(f"\nperegrine: stopped; the same command goes on with {given.output}", file=sys.stderr)
        return cast("int", code)
    if not given.quiet:
        shown.end(report)
    return 2 if report.failures else 0


def _terminated(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt(128 + number)


def _plan(given: argparse.Namespace) -> Plan:
    named = vars(given)
    options = {option.name: named[f"option {option.name}"] for option in option_table()}
    settings = {name: named[name] for name in _SETTINGS if named[name] is not None}
    if given.models is not None:
        # They choose the models, and are no options of each text.
        settings.update({name: options.pop(name) for name in ("from_", "to")})
    return Plan(
        given.source,
        given.output,
        model=given.model,
        column=given.column,
        into=given.into,
        keep=None if given.keep is None else given.keep.split(","),
        format=given.format,
        input_format=given.input_format,
        dedupe=given.dedupe,
        options=cast("Options", {name: value for name, value in options.items() if value is not None}),
        **settings,
    )


def _carry_out(plan: Plan, given: argparse.Namespace, tell: Show | ShowJson | None) -> Report:
    if given.engine == "local":
        for name in ("num_cpus", "num_gpus", "address", "ship_model"):
            if getattr(given, name):
                raise ValueError(f"--{name.replace('_', '-')}: is for --engine ray")
        return run(plan, workers=given.workers, threads=given.threads, tell=tell, max_failures=given.max_failures)
    if given.threads is not None:
        raise ValueError("--threads: with --engine ray, --num-cpus says how many threads a worker has")
    from .. import ray

    return ray.run(
        plan,
        workers=given.workers,
        num_cpus=given.num_cpus,
        num_gpus=given.num_gpus or 0,
        ship_model=given.ship_model,
        address=given.address,
        tell=tell,
        max_failures=given.max_failures,
    )


class Option(NamedTuple):
    """An option of a translation."""

    name: str
    kind: str
    help: str


def option_table() -> Iterator[Option]:
    """The options of :class:`peregrine.Options` with their types and what is said of them there.

    >>> next(option_table())
    Option(name='from_', kind='str | None', help='The language of the texts, for multilingual models.')
    """
    (table,) = [node for node in ast.parse(inspect.getsource(_options)).body if isinstance(node, ast.ClassDef)]
    for field, comment in zip(table.body, table.body[1:]):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(comment, ast.Expr):
            yield Option(field.target.id, ast.unparse(field.annotation), str(ast.literal_eval(comment.value)))


#: Settings of a translator that the command has, and what is said of them.
_SETTINGS = {
    "models": "a folder of models, of which the one from --from to --to is used, or two in a row",
    "device": "auto, cpu, cuda or cuda:N",
    "precision": "float32, bfloat16, int16, int8; on a GPU also tf32, float16, fp8",
    "memory": "what a worker may use, such as 2GB",
    "vocab": "source and target vocabulary, where the model's directory does not tell",
    "then": "a second model, which translates what the first one makes of the text",
}


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    width = min(120, int(os.environ.get("COLUMNS", "120")))
    parser = argparse.ArgumentParser(
        "peregrine corpus",
        usage="peregrine corpus [OPTIONS] SOURCE... OUTPUT",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=lambda prog: formatter(prog, max_help_position=34, width=width),
        allow_abbrev=False,
    )
    parser.add_argument("source", nargs="+", metavar="SOURCE", help="files, or folders with all that is below them")
    parser.add_argument("output", metavar="OUTPUT", help="the folder to write to")

    files = parser.add_argument_group("Files")
    files.add_argument("--column", default="text", metavar="NAME", help="the column to translate [text]")
    files.add_argument("--into", default="translation", metavar="NAME", help="the column for translations [translation]")
    files.add_argument("--keep", metavar="NAME,…", help="the columns to keep, such as ids [all]")
    files.add_argument("--format", choices=FORMATS, help="the format of the output [that of each file]")
    files.add_argument(
        "--input-format", choices=FORMATS, help="the format of all files [by their endings; what is unknown is text]"
    )
    files.add_argument(
        "--dedupe", action="store_true", help="translate lines once that differ in blanks or composed characters only"
    )

    engine = parser.add_argument_group("Engine")
    engine.add_argument("--engine", choices=("local", "ray"), default="local", help="where workers run [local]")
    engine.add_argument("--workers", type=int, metavar="N", help="workers, each with a model of its own [by cores or GPUs]")
    engine.add_argument("-t", "--threads", type=int, metavar="N", help="threads of a local worker [up to 4]")
    engine.add_argument("--max-failures", type=int, default=100, metavar="N", help="end after so many failed files [100]")
    engine.add_argument("--num-cpus", type=int, metavar="N", help="Ray: CPUs, and threads, of a worker [those of a node]")
    engine.add_argument("--num-gpus", type=float, metavar="N", help="Ray: GPUs of a worker [none]")
    engine.add_argument("--address", metavar="ADDRESS", help="Ray: the cluster's address [one on this machine is started]")
    engine.add_argument(
        "--ship-model", action="store_true", help="Ray: send the model to the nodes, which have no path to it"
    )
    engine.add_argument("--json", action="store_true", help="print what happens as JSON lines")
    engine.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")

    model = parser.add_argument_group("Model")
    model.add_argument("-m", "--model", action="append", metavar="PATH", help="a model; several are an ensemble [built-in]")
    for name, told in _SETTINGS.items():
        more: dict[str, Any] = {"nargs": 2, "metavar": ("SOURCE", "TARGET")} if name == "vocab" else {"metavar": name.upper()}
        model.add_argument(f"--{name}", help=told, **more)

    translation = parser.add_argument_group("Translation", "As in `peregrine translate`, and in peregrine.Options.")
    for option in option_table():
        _add_option(translation, option)
    return parser


def _add_option(group: argparse._ArgumentGroup, option: Option) -> None:
    """An option of the table; what a value may be is checked by the engine."""
    more: dict[str, Any] = {"metavar": "ON|OFF", "type": _switch, "nargs": "?", "const": True}
    if option.kind.startswith("str"):
        more = {"metavar": "LANGUAGE"}
    elif option.kind.startswith("int"):
        more = {"metavar": "N", "type": int}
    elif option.kind.startswith("float"):
        more = {"metavar": "X", "type": float}
    elif option.kind.startswith("Literal"):
        more = {"choices": [value.strip("' \"") for value in option.kind.split("[")[1].split("]")[0].split(",")]}
    elif option.kind.startswith("Mapping"):
        more = {"metavar": "FILE"}
    elif "StrPath" in option.kind:
        more = {"metavar": "FILE", "type": _switch_or_path, "nargs": "?", "const": True}
    names = [f"--{option.name.rstrip('_').replace('_', '-')}"]
    if option.name == "beam":
        names.insert(0, "-b")
    text = option.help[:1].lower() + option.help[1:].rstrip(".")
    group.add_argument(*names, dest=f"option {option.name}", help=text.replace("%", "%%").replace("``", "`"), **more)


def _switch(value: str) -> bool:
    if value not in ("on", "off"):
        raise argparse.ArgumentTypeError(f"expected on or off, not {value!r}")
    return value == "on"


def _switch_or_path(value: str) -> bool | str:
    return _switch(value) if value in ("on", "off") else value
