"""Corpora of many files: translated partition by partition, stopped and gone on with, exactly once.

>>> import pathlib, tempfile
>>> from peregrine import corpus
>>> folder = pathlib.Path(tempfile.mkdtemp())
>>> (folder / "in").mkdir()
>>> for number in range(3):
...     _ = (folder / "in" / f"{number}.txt").write_text("Good morning!\\nIt is raining.\\n")
>>> plan = corpus.Plan(folder / "in", folder / "out")
>>> report = corpus.run(plan, workers=1, threads=1)
>>> report.done, report.lines, (folder / "out" / "2.txt").read_text()
(3, 6, 'Bom dia!\\nEstá chovendo.\\n')

Running it again does what is not there yet:

>>> (folder / "out" / "1.txt").unlink()
>>> again = corpus.run(plan, workers=1, threads=1)
>>> again.done, again.skipped
(1, 2)

A partition's file is written beside its place and renamed when it is whole, so what is there is right. A worker that is killed is
replaced, and its partition done again. A partition that cannot be read costs no other: ``report.failures`` has file and place. The
file ``_peregrine.json`` in the output says how its files were made; a run with another model, other options or a changed input is refused.

``peregrine corpus`` is the command. :mod:`peregrine.ray` carries out the same plan on many machines.
"""

from __future__ import annotations

from ._local import run
from ._plan import Plan
from ._run import Died, Report
from ._show import show
from ._worker import Outcome, Partition, opened

__all__ = ["Died", "Outcome", "Partition", "Plan", "Report", "opened", "run", "show"]
