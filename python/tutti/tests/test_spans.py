"""Spans in one process; spans_ranks.py has those that a trace shows."""

import gc
import os
import re
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from launch import ROOT

import tutti
from tutti import _library


class Spans(unittest.TestCase):
    def test_the_structure_is_that_of_the_header(self) -> None:
        header = (ROOT / "include/tutti/tutti_spans.h").read_text(encoding="utf-8")
        found = re.search(r"typedef struct \{(.*?)\} tutti_span_t", header, re.S)
        assert found is not None
        members = re.findall(r"^  (\w+\*?) (\w+)(?:\[(\d+)\])?;", found[1], re.M)
        self.assertEqual(members, [("void*", "row", ""), ("int64_t", "begin_ns", ""), ("char", "name", "48")])
        self.assertEqual([name for name, *_ in _library.Span._fields_], [name for _, name, _ in members])

    def test_without_a_trace_a_span_is_nothing_and_is_not_made(self) -> None:
        with tutti.init() as comm:
            row = comm.spans("layers")
            self.assertIn("not traced", repr(row))
            self.assertIs(row.span("forward", "conv1"), row.span("backward"))
            with row.span("forward"), row.span("within"):
                pass

    def test_a_span_lets_exceptions_pass(self) -> None:
        with tutti.init() as comm, self.assertRaises(KeyError), comm.spans().span("raises"):
            raise KeyError("nothing of that name")

    def test_a_row_of_a_communicator_that_is_closed_is_an_error(self) -> None:
        comm = tutti.init()
        comm.close()
        with self.assertRaisesRegex(tutti.InvalidArgumentError, "communicator is NULL"):
            comm.spans()

    def test_a_row_is_given_back_when_nothing_refers_to_it_or_its_spans(self) -> None:
        freed: list[int] = []
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.dict(os.environ, TUTTI_TRACE=str(Path(folder) / "trace.json")),
            mock.patch.dict(_library.functions, spans_free=freed.append),
            tutti.init() as comm,
        ):
            row = comm.spans()
            self.assertEqual(repr(row), "<tutti.Spans: traced>")
            handle, span = row._handle, row.span("forward")
            del row
            gc.collect()
            self.assertEqual(freed, [])
            with span:
                pass
            del span
            gc.collect()
            self.assertEqual(freed, [handle])


if __name__ == "__main__":
    unittest.main(verbosity=2)
