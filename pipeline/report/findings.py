"""Unusual facts about a log, as sentences: each rule reads a report and yields its findings, or none.

An alarm is a fact that should not occur in any log; a notice is a fact that the log's owner should know.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pipeline.common.figures import bytes_text, count_text, duration_text, share_text, short_count
from store.model.topics import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, is_retry_topic, is_system_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pipeline.report.summary import Report, TopicSummary
    from store.model.dispatch_batch import Bools, Int64s

_MESSAGES_MIN: Final = 1000
_BURST_FACTOR: Final = 3.0
_QUIET_STEPS_MIN: Final = 3
_USUAL_MIN: Final = 20
_UNEVEN_FACTOR: Final = 2.0
_HOT_SHARE: Final = 0.1
_RETRIED_SHARE: Final = 0.01
_CLOCK_SHARE: Final = 0.001
_SLOW_MS: Final = 1000
_BODY_LARGE: Final = 1 << 20
_LISTED_MAX: Final = 3


class Level(StrEnum):
    """The severity of a finding."""

    ALARM = "alarm"
    NOTICE = "notice"


class ReportFinding(NamedTuple):
    """One unusual fact: a short title, and one or two sentences with its figures and the recommended action."""

    level: Level
    title: str
    text: str


def find_unusual(report: Report) -> list[ReportFinding]:
    """Return the unusual findings, alarms first; empty if there are none."""
    found = [finding for rule in _RULES for finding in rule(report)]
    return sorted(found, key=lambda finding: finding.level != Level.ALARM)


def _unreadable(report: Report) -> Iterator[ReportFinding]:
    if report.skipped:
        text = f"{count_text(report.skipped, 'record')} could not be read and are missing from all figures here. "
        yield ReportFinding(Level.ALARM, "Damaged records", text + "`dledger verify` names each place.")


def _missing_offsets(report: Report) -> Iterator[ReportFinding]:
    with_gaps = sorted((queue for queue in report.queues if queue.missing), key=lambda queue: -queue.missing)
    if with_gaps:
        missing = sum(queue.missing for queue in with_gaps)
        places = "; ".join(
            f"{queue.topic}/{queue.queue_id} lacks {queue.missing:,}, such as [{queue.gaps[0][0]}, {queue.gaps[0][1]})"
            for queue in with_gaps[:_LISTED_MAX]
        )
        more = f"; and {len(with_gaps) - _LISTED_MAX} queues more" if len(with_gaps) > _LISTED_MAX else ""
        least = "" if all(queue.is_missing_exact for queue in with_gaps) else "at least "
        text = f"{least}{count_text(missing, 'queue offset')} between existing messages: {places}{more}."
        text = text[0].upper() + text[1:]
        yield ReportFinding(Level.ALARM, "Gaps in queues", text)
    doubled = sorted((queue for queue in report.queues if queue.repeated), key=lambda queue: -queue.repeated)
    if doubled:
        places = ", ".join(f"{queue.topic}/{queue.queue_id}" for queue in doubled[:_LISTED_MAX])
        repeated = sum(queue.repeated for queue in doubled)
        text = f"{count_text(repeated, 'message')} have the queue offset of another message: {places}."
        yield ReportFinding(Level.ALARM, "Queue offsets given twice", text)


def _given_up(report: Report) -> Iterator[ReportFinding]:
    for topic in report.topics:
        if topic.topic.startswith(DLQ_PREFIX) and topic.messages:
            group = topic.topic.removeprefix(DLQ_PREFIX)
            text = (
                f"{group} failed to process {count_text(topic.messages, 'message')}; no consumer receives them again "
            )
            yield ReportFinding(Level.ALARM, f"Dead letters of {group}", text + f"unless {topic.topic} is read.")
    retried = [topic for topic in report.topics if topic.topic.startswith(RETRY_PREFIX) and topic.messages]
    total = sum(topic.messages for topic in retried)
    if retried and total >= _RETRIED_SHARE * report.messages:
        first = max(retried, key=lambda topic: topic.messages)
        text = (
            f"{share_text(total / report.messages)} of all messages were returned by consumers for a retry; "
            f"{first.topic.removeprefix(RETRY_PREFIX)} returned {first.messages:,}."
        )
        yield ReportFinding(Level.NOTICE, "Many retries", text)


def _repeated_keys(report: Report) -> Iterator[ReportFinding]:
    if report.repeated_keys:
        about = "" if report.is_repeated_exact else "About "
        verb = "carries" if report.repeated_keys == 1 else "carry"
        count = count_text(report.repeated_keys, "message")
        text = f"{about}{count} {verb} the UNIQ_KEY of an earlier one of the same topic: "
        text += "a producer retried messages that had arrived."
        # Repetitions much later are counted, but not stored as examples.
        for topic, key in report.repeated_examples[:1]:
            text += f" For example {key} of {topic}."
        yield ReportFinding(Level.NOTICE, "Messages sent twice", text)


def _clocks(report: Report) -> Iterator[ReportFinding]:
    ahead = sum(topic.born_later for topic in report.topics)
    if ahead > _CLOCK_SHARE * report.messages:
        text = f"{share_text(ahead / report.messages)} of the messages were stored before they were created: clocks of "
        yield ReportFinding(Level.NOTICE, "Clocks disagree", text + "clients are ahead of the broker's.")


def _burst(report: Report) -> Iterator[ReportFinding]:
    counts = _steps(report)
    busy = counts[counts > 0]
    if len(busy) < 2 * _QUIET_STEPS_MIN or np.median(busy) < _USUAL_MIN:
        return
    usual = float(np.median(busy))
    place = int(np.argmax(counts))
    if counts[place] < _BURST_FACTOR * usual:
        return
    begin, end = _run_around(counts > _BURST_FACTOR / 2 * usual, place)
    seconds = report.step_ms / 1000
    lasted = duration_text((end - begin) * seconds)
    topic = max(report.series, key=lambda name: sum(report.series[name][0][begin:end]))
    text = (
        f"From {_clock(report, begin)} on, for {lasted}, up to {short_count(counts[place] / seconds)} messages "
        f"a second arrived, {counts[place] / usual:.1f} times as many as usual; most of them of {topic}."
    )
    yield ReportFinding(Level.NOTICE, "A rush", text)


def _silence(report: Report) -> Iterator[ReportFinding]:
    counts = _steps(report)
    busy = counts[counts > 0]
    if len(busy) < 2 * _QUIET_STEPS_MIN or np.median(busy) < _USUAL_MIN:
        return
    edges = np.flatnonzero(np.diff(np.concatenate(([False], counts == 0, [False])).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    if not len(begins) or (ends - begins).max() < _QUIET_STEPS_MIN:
        return
    longest = int(np.argmax(ends - begins))
    seconds = float(ends[longest] - begins[longest]) * report.step_ms / 1000
    text = f"From {_clock(report, int(begins[longest]))} on nothing was stored for {duration_text(seconds)}."
    yield ReportFinding(Level.NOTICE, "Silence", text)


def _uneven_queues(report: Report) -> Iterator[ReportFinding]:
    for topic in _own_topics(report):
        counts = {queue.queue_id: queue.messages for queue in report.queues if queue.topic == topic.topic}
        if len(counts) < 2:
            continue
        fullest = max(counts, key=lambda queue_id: counts[queue_id])
        mean = topic.messages / len(counts)
        if counts[fullest] > _UNEVEN_FACTOR * mean:
            text = (
                f"Queue {fullest} of {topic.topic} holds {share_text(counts[fullest] / topic.messages)} of it, "
                f"{counts[fullest] / mean:.1f} times its share: one consumer has most of the work."
            )
            yield ReportFinding(Level.NOTICE, f"Uneven queues of {topic.topic}", text)


def _hot_keys(report: Report) -> Iterator[ReportFinding]:
    keyed = {topic.topic: topic.keyed for topic in report.topics if topic.messages >= _MESSAGES_MIN}
    hot = [key for key in report.hot_keys if key.topic in keyed and key.at_least > _HOT_SHARE * keyed[key.topic]]
    if hot:
        listed = ", ".join(
            f"{key.name} ({share_text(key.at_least / keyed[key.topic])} of the messages of {key.topic} with a key)"
            for key in hot[:_LISTED_MAX]
        )
        more = f", and {len(hot) - _LISTED_MAX} more" if len(hot) > _LISTED_MAX else ""
        yield ReportFinding(Level.NOTICE, "Hot keys", f"Some keys are very frequent: {listed}{more}.")


def _slow(report: Report) -> Iterator[ReportFinding]:
    slow = [topic for topic in _own_topics(report) if (topic.delays_ms.p99 or 0) >= _SLOW_MS]
    for topic in sorted(slow, key=lambda topic: -(topic.delays_ms.p99 or 0))[:_LISTED_MAX]:
        half, most = (duration_text((delay or 0) / 1000) for delay in (topic.delays_ms.p50, topic.delays_ms.p99))
        text = (
            f"One message in a hundred of {topic.topic} took {most} or more from creation to storage "
            f"(half of them at most {half})."
        )
        yield ReportFinding(Level.NOTICE, f"Slow to arrive: {topic.topic}", text)


def _large(report: Report) -> Iterator[ReportFinding]:
    for topic in _own_topics(report):
        if (topic.body_sizes.p99 or 0) >= _BODY_LARGE:
            text = f"One body in a hundred of {topic.topic} is of {bytes_text(topic.body_sizes.p99 or 0)} or more."
            yield ReportFinding(Level.NOTICE, f"Large bodies in {topic.topic}", text)


_RULES: Final[tuple[Callable[[Report], Iterator[ReportFinding]], ...]] = (
    _unreadable,
    _missing_offsets,
    _given_up,
    _repeated_keys,
    _clocks,
    _burst,
    _silence,
    _uneven_queues,
    _hot_keys,
    _slow,
    _large,
)


def _own_topics(report: Report) -> Iterator[TopicSummary]:
    """Yield the topics that clients send to, with enough messages for a meaningful statistic."""
    for topic in report.topics:
        is_own = not is_system_topic(topic.topic) and not is_retry_topic(topic.topic) and topic.topic != SCHEDULE_TOPIC
        if is_own and topic.messages >= _MESSAGES_MIN:
            yield topic


def _steps(report: Report) -> Int64s:
    steps: Int64s = np.array([messages for messages, _ in report.series.values()], np.int64).sum(axis=0)
    return steps


def _run_around(is_high: Bools, place: int) -> tuple[int, int]:
    begin = end = place
    while begin > 0 and is_high[begin - 1]:
        begin -= 1
    while end < len(is_high) and is_high[end]:
        end += 1
    return begin, end


def _clock(report: Report, step: int) -> str:
    time = datetime.fromtimestamp(report.first_step_ms / 1000, UTC) + timedelta(milliseconds=step * report.step_ms)
    return f"{time:%Y-%m-%d %H:%M:%S}"
