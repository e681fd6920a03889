"""Real servers for every test that needs them: started once, lazily, stopped at the end."""

pytest_plugins = [
    "fixtures.state",
    "fixtures.postgres",
    "fixtures.broker",
    "fixtures.stacks",
    "fixtures.retrying",
    "fixtures.producer",
    "fixtures.status_page",
    "fixtures.browser",
    "fixtures.dying",
    "fixtures.journey",
    "fixtures.lone",
    "fixtures.trap",
    "fixtures.receiver",
    "fixtures.otlp",
    "fixtures.spans",
    "fixtures.typescript",
    "fixtures.outbox",
]
