"""Which provider is called is decided by the environment alone."""

import json
from pathlib import Path

import pytest

from invoices.provider import MODEL, NoProvider, Provider


@pytest.fixture
def announced(tmp_path: Path) -> Path:
    state = tmp_path / "sandbox.json"
    state.write_text(json.dumps({"url": "http://127.0.0.1:1234"}))
    return state


def test_without_settings_the_announced_sandbox_is_called(announced):
    provider = Provider.from_environment({"INVOICES_SANDBOX_STATE": str(announced)})

    assert provider == Provider("http://127.0.0.1:1234/v1", "sandbox", MODEL, 60.0)


def test_a_key_alone_means_the_real_provider(announced):
    provider = Provider.from_environment(
        {"OPENAI_API_KEY": "sk-real", "INVOICES_SANDBOX_STATE": str(announced)}
    )

    assert (provider.base_url, provider.api_key) == ("https://api.openai.com/v1", "sk-real")


def test_an_address_model_and_time_limit_are_taken_as_given():
    provider = Provider.from_environment(
        {
            "OPENAI_BASE_URL": "http://models.example/v1",
            "INVOICES_MODEL": "other",
            "INVOICES_MODEL_TIMEOUT": "2.5",
        }
    )

    assert provider == Provider("http://models.example/v1", "not-needed", "other", 2.5)


def test_with_nothing_to_call_the_error_says_what_to_do(tmp_path):
    with pytest.raises(NoProvider, match=r"OPENAI_API_KEY is not set.*python -m invoices\.sandbox"):
        Provider.from_environment({"INVOICES_SANDBOX_STATE": str(tmp_path / "none.json")})


def test_a_time_limit_that_is_no_number_is_named():
    with pytest.raises(NoProvider, match=r"INVOICES_MODEL_TIMEOUT is 'soon'; expected a number"):
        Provider.from_environment({"OPENAI_API_KEY": "k", "INVOICES_MODEL_TIMEOUT": "soon"})
