#!/usr/bin/env bash
# The Python package (python/tutti): every collective on 1 to 4 ranks, spans, failures, recovery, joining.
# What needs NumPy is skipped where it is not; scripts/python makes an environment that has it.
python=$TEST_SOURCE_DIR/build/venv-python/bin/python
[ -x "$python" ] || python=python3
exec "$python" "$TEST_SOURCE_DIR/python/tutti/tests/test_ranks.py"
