import os
import random

import pytest

# A run can be repeated: TUTTI_TEST_SEED=N.
SEED = int(os.environ.get("TUTTI_TEST_SEED", random.randrange(1 << 30)))


@pytest.fixture
def seed():
    return SEED


def pytest_report_header():
    return f"TUTTI_TEST_SEED={SEED}"
