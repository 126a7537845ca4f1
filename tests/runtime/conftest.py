"""The nets that the runtime's tests run through."""

import pytest

from tests.runtime import zoo


@pytest.fixture(scope="session", params=["by hand", "compiled"])
def net(request):
    """A hybrid with every mixer, twice: as a person writes it, and as the compiler does."""
    if request.param == "compiled":
        import hybridc

        return zoo.loud(hybridc.compile(zoo.SPEC).load(seed=1))
    made = zoo.Zoo()
    made.init_weights(seed=1)
    return zoo.loud(made)
