#!/usr/bin/env python3
"""Asks Punctual for a timer over NATS JetStream, and waits until it is due.

    NATS_URL=nats://127.0.0.1:4222 python remind.py --in-ms 2000 --data '{"say": "tea is ready"}'

Prints the ScheduleTimer that it sent and the DueTimeReached that came, one line of JSON each. The exit
code is 0 if both worked, 1 if not (standard error says why), 2 for wrong usage.

It knows no more about Punctual than docs/messages.md says. The package nats-py is all it needs.
"""

import argparse
import asyncio
import json
import os
import sys
import time
import uuid
from datetime import datetime, timezone

import nats
from nats.errors import NoRespondersError, TimeoutError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NoStreamResponseError, NotFoundError, ServiceUnavailableError

# How long a single answer of the broker may take.
ANSWER_SECONDS = 5

# How long to wait before a question is asked again that the broker could not answer yet.
PAUSE_SECONDS = 0.2


def now_ms():
    """Milliseconds since 1970, as `timestampMs` wants them."""
    return time.time_ns() // 1_000_000


def date(ms):
    """An instant as RFC 3339, with milliseconds and a time zone."""
    seconds, rest = divmod(ms, 1000)
    text = datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{rest:03}Z"


def schedule_timer(tenant, in_ms, data):
    """A ScheduleTimer for a new timer. Envelope and payload name the same tenant and service call."""
    written = now_ms()
    service_call_id = str(uuid.uuid4())
    payload = {
        "tenantId": tenant,
        "serviceCallId": service_call_id,
        "dueAt": date(written + in_ms),
    }
    if data is not None:
        payload["data"] = data
    return {
        "id": str(uuid.uuid4()),
        "type": "ScheduleTimer",
        "tenantId": tenant,
        "aggregateId": service_call_id,
        "timestampMs": written,
        "correlationId": str(uuid.uuid4()),
        "payload": payload,
    }


async def until(deadline, what, attempt, *not_yet):
    """Tries again until it works. What is not there yet may come, up to the deadline."""
    while True:
        try:
            return await attempt()
        except not_yet as error:
            if time.monotonic() >= deadline:
                raise SystemExit(f"error: {what}: {error or type(error).__name__}") from error
            await asyncio.sleep(PAUSE_SECONDS)


async def listen(js, stream, subject, deadline):
    """A pull consumer for the events of one tenant from now on.

    It is made before the command is sent, so that no event can be missed. It is not durable, because this
    program asks about one timer and then ends; a service gives its consumer a name and keeps it.
    """
    config = ConsumerConfig(
        ack_policy=AckPolicy.EXPLICIT,
        deliver_policy=DeliverPolicy.NEW,
        # Seconds without a fetch after which the broker deletes the consumer.
        inactive_threshold=60,
    )

    def subscribe():
        return js.pull_subscribe(subject, stream=stream, config=config)

    # The service makes the streams when it first reaches the broker.
    return await until(
        deadline,
        f"there is no stream {stream}",
        subscribe,
        NotFoundError,
        ServiceUnavailableError,
        TimeoutError,
    )


async def publish(js, subject, command, deadline):
    """Publishes until JetStream has acknowledged.

    Without an acknowledgement nobody knows whether the message was stored. The same bytes under the same
    `Nats-Msg-Id` can be sent again without harm.
    """
    body = json.dumps(command).encode()
    headers = {"Nats-Msg-Id": command["id"]}

    def send():
        return js.publish(subject, body, timeout=ANSWER_SECONDS, headers=headers)

    return await until(
        deadline,
        "the broker did not acknowledge the command",
        send,
        NoStreamResponseError,
        NoRespondersError,
        TimeoutError,
    )


async def due_time_reached(consumer, service_call_id, deadline):
    """The event of this timer, acknowledged. Should it come twice, both have the same `firingId`."""
    while time.monotonic() < deadline:
        try:
            messages = await consumer.fetch(1, timeout=ANSWER_SECONDS)
        except TimeoutError:
            continue  # nothing came in that time
        for message in messages:
            event = json.loads(message.data)
            # Here a service would do its work, and remember the firingId with it. Then:
            await message.ack_sync(timeout=ANSWER_SECONDS)
            if event["type"] == "DueTimeReached" and event["aggregateId"] == service_call_id:
                return event
    raise SystemExit("error: no DueTimeReached came in time")


async def not_the_last_word(_error):
    """The client tries to connect again by itself, and raises the error that it gives up with."""


async def remind(options):
    """Connects, asks for the timer, and waits for it."""
    # With a prefix, streams are called prefix-NAME and subjects begin with prefix.
    stream = f"{options.prefix}-EVENTS" if options.prefix else "EVENTS"
    topic = f"{options.prefix}.timer" if options.prefix else "timer"
    deadline = time.monotonic() + (options.in_ms + options.patience_ms) / 1000

    url = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")
    connection = await nats.connect(
        url,
        name="remind.py",
        connect_timeout=ANSWER_SECONDS,
        max_reconnect_attempts=5,
        error_cb=not_the_last_word,
    )
    try:
        js = connection.jetstream(timeout=ANSWER_SECONDS)
        command = schedule_timer(options.tenant, options.in_ms, options.data)
        consumer = await listen(js, stream, f"{topic}.events.{options.tenant}", deadline)
        await publish(js, f"{topic}.commands.{options.tenant}", command, deadline)
        print(json.dumps(command), flush=True)
        event = await due_time_reached(consumer, command["aggregateId"], deadline)
        print(json.dumps(event), flush=True)
    finally:
        await connection.close()


def arguments():
    """The command line. The limits are those of docs/messages.md."""
    parser = argparse.ArgumentParser(description="Asks Punctual for a timer and waits for it.")
    parser.add_argument("--tenant", default="demo", help="whose timer (default: demo)")
    parser.add_argument(
        "--in-ms", type=int, default=2000, help="delay until it is due, in milliseconds (default: 2000)"
    )
    parser.add_argument("--data", type=json.loads, help="JSON that comes back with the event")
    parser.add_argument("--prefix", default="", help="what the operator's streams begin with")
    parser.add_argument(
        "--patience-ms",
        type=int,
        default=30_000,
        help="how long after that the event may come (default: 30000)",
    )
    return parser.parse_args()


def main():
    try:
        asyncio.run(remind(arguments()))
    except (OSError, nats.errors.Error) as error:
        sys.exit(f"error: {error or type(error).__name__}")


if __name__ == "__main__":
    main()
