"""RabbitMQ: distributes wake-ups, holds pauses, buffers bursts."""
