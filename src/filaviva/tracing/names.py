"""Names of attributes: those of the semantic conventions v1.44, and our own.

OpenTelemetry has the first ones as constants, but in a module that it may change at will: a test
compares.
"""

from typing import Final

SYSTEM: Final = "messaging.system"
RABBITMQ: Final = "rabbitmq"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
ROUTING_KEY: Final = "messaging.rabbitmq.destination.routing_key"
DELIVERY_TAG: Final = "messaging.rabbitmq.message.delivery_tag"
MESSAGE_ID: Final = "messaging.message.id"
CONVERSATION_ID: Final = "messaging.message.conversation_id"
BATCH_COUNT: Final = "messaging.batch.message_count"
ERROR_TYPE: Final = "error.type"

GEN_AI_OPERATION: Final = "gen_ai.operation.name"
GEN_AI_PROVIDER: Final = "gen_ai.provider.name"
GEN_AI_MODEL: Final = "gen_ai.request.model"
GEN_AI_INPUT: Final = "gen_ai.usage.input_tokens"
GEN_AI_OUTPUT: Final = "gen_ai.usage.output_tokens"
GEN_AI_CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
GEN_AI_CACHE_WRITE: Final = "gen_ai.usage.cache_creation.input_tokens"

JOB_ID: Final = "filaviva.job.id"
JOB_TYPE: Final = "filaviva.job.type"
JOB_VERSION: Final = "filaviva.job.version"
ATTEMPT: Final = "filaviva.job.attempt"
TENANT: Final = "filaviva.tenant"
OUTCOME: Final = "filaviva.outcome"
ERROR_CLASS: Final = "filaviva.error.class"
REASON: Final = "filaviva.reason"
PAUSE: Final = "filaviva.pause_seconds"
NOT_BEFORE: Final = "filaviva.not_before"
WAITED: Final = "filaviva.waited_seconds"
DUPLICATE: Final = "filaviva.duplicate"
STEP: Final = "filaviva.step.name"
STEP_TOOL: Final = "filaviva.step.tool"
STEP_STATE: Final = "filaviva.step.state"
COST: Final = "filaviva.cost_usd"
PRICE_SOURCE: Final = "filaviva.price_source"
# What a link leads to.
LINK: Final = "filaviva.link"
