#!/usr/bin/env bash
# The Python package (python/tutti): buffers, errors of use, work, memory, spans, and tutti.h against the binding.
# What needs NumPy is skipped where it is not; scripts/python makes an environment that has it.
python=$TEST_SOURCE_DIR/build/venv-python/bin/python
[ -x "$python" ] || python=python3
for test in test_alone test_works test_spans test_windows; do
  "$python" "$TEST_SOURCE_DIR/python/tutti/tests/$test.py" || exit 1
done
