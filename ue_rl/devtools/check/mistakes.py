"""The catalogue: every mistake that a check can name, with the section of the protocol that it breaks, and its cure.

A name is a promise to scripts: it stays what it is. The sections are those of docs/protocol.md, or of
docs/shared-memory.md where that stands in front.
"""

from __future__ import annotations

from dataclasses import dataclass

_SECTIONS = {
    "1": "1 (Transport)",
    "2": "2 (Grammar)",
    "2n": "2 (Grammar, Numbers)",
    "3": "3 (Handshake)",
    "3s": "3 (Handshake, Spaces)",
    "4": "4 (Order of messages and the two wirings)",
    "5": "5 (Steps and resets)",
    "5m": "5 (Steps and resets, Action masks)",
    "5d": "5 (Steps and resets, The dialects of the deployed plugin)",
    "5a": "5 (Steps and resets, Resets asked ahead)",
    "5q": "5 (Steps and resets, Numbers of requests)",
    "6": "6 (RLBASE)",
    "7": "7 (Agents)",
    "8": "8 (Calls)",
    "9": "9 (Limits)",
    "10": "10 (Errors)",
    "shm4": "docs/shared-memory.md, section 4 (Steps, waiting, rings)",
}


@dataclass(frozen=True)
class Mistake:
    """Something that an engine does wrong.

    Args:
        name: for scripts, in kebab case.
        title: for people, a clause without a full stop.
        section: of docs/protocol.md.
        cure: what to do about it, one or two sentences.
    """

    name: str
    title: str
    section: str
    cure: str


def _table(*rows: tuple[str, str, str, str]) -> dict[str, Mistake]:
    return {name: Mistake(name, title, _SECTIONS[section], cure) for name, section, title, cure in rows}


# fmt: off
MISTAKES: dict[str, Mistake] = _table(
    # the connection and the handshake
    ("not-listening", "1", "nobody listens at this address",
        "Start the game first (Play), and check the port. An engine listens; the trainer connects."),
    ("busy", "10", "the engine serves another trainer",
        "Close the other trainer. An engine serves one at a time and says BUSY to the others."),
    ("no-handshake", "3", "the engine accepted the connection and sent no handshake",
        "Send the CONFIG line as soon as the first connection is accepted. The deployed Unreal plugin serves one "
        "trainer in each Play: press Play again."),
    ("late-handshake", "3", "the handshake came after the first request",
        "Send the CONFIG line at once when the connection is accepted; do not wait for the trainer to speak."),
    ("bad-handshake", "3", "the handshake cannot be read",
        "Compare the CONFIG line with the grammar, key by key."),
    ("wrong-version", "3", "VERSION is not one that this library speaks",
        "Write VERSION=1, or leave it out: the version is the protocol's, not the game's."),
    ("not-version-1", "3", "the handshake does not say VERSION=1",
        "Add VERSION=1 and CHANNEL=.. to the CONFIG line, or check with --base if this is the deployed plugin."),
    ("unknown-key", "3", "the handshake has a key or a feature that nobody knows",
        "Correct its spelling; trainers ignore what they do not know, so what it says is lost."),
    ("channel-not-said", "3", "the handshake does not say which wiring the engine serves",
        "Add CHANNEL=SHARED, PER_ENV or ANY: without it trainers open env sockets first."),
    ("env-socket-refused", "4", "the engine refuses an env socket",
        "Accept ENV_COUNT connections behind the first one, or write CHANNEL=SHARED."),
    ("no-newline", "1", "the line has no line feed at its end",
        "End every message with a line feed (\\n), also the handshake; then flush the stream."),
    ("carriage-return-only", "1", "lines end in a carriage return alone", "End every message with \\n or \\r\\n."),
    ("not-plain-text", "1", "bytes that are no text stand in a message or behind it",
        "Write the line's characters in ASCII and a line feed, nothing else: no zero behind a string (strlen, not "
        "sizeof), no byte order mark (in C# new UTF8Encoding(false)), no UTF-16, no length in front."),
    # rows
    ("missing-separator", "2", "no semicolon separates two fields",
        "Put a semicolon between OBS, REW, DONE and ENV: OBS=1,2;REW=0.5;DONE=0;ENV=0."),
    ("wrong-separator", "2", "rows are separated by something else than ||",
        "Join the rows of one line with ||, without one at the end."),
    ("wrong-count", "2", "an observation has another number of numbers than the handshake's OBS",
        "Make OBS in the handshake the number of values that the game writes for each env."),
    ("decimal-comma", "2n", "numbers are written with a decimal comma",
        "Format numbers with the invariant or C locale: a comma separates two numbers. In C# "
        "CultureInfo.InvariantCulture, in C++ std::to_chars, in C setlocale(LC_NUMERIC, \"C\")."),
    ("not-a-number", "2n", "something else stands where a number belongs",
        "Write plain decimal numbers with one comma between two: OBS=0.5,-3,1e-05; no brackets, quotes or blanks, no "
        "comma at the end, and as many in the last state of an episode as in the others."),
    ("reward-not-a-number", "2n", "the reward is not a number", "Write REW= and a plain decimal number: REW=0.5."),
    ("nan", "2n", "a value is NaN, infinite or beyond float32",
        "Look for a division by zero or a value that was never set, and end the episode instead."),
    ("missing-field", "2", "a row lacks a field that it must have",
        "Write OBS, REW and DONE in every row, also in the answer to a reset."),
    ("missing-env", "4", "a row does not say which env it is of",
        "Add ;ENV=i to each row where the engine has several envs."),
    ("env-off-by-one", "4", "env ids begin with 1", "Number envs from 0 to ENV_COUNT-1."),
    ("unknown-env", "4", "a row names an env that does not exist", "Number envs from 0 to ENV_COUNT-1."),
    ("wrong-socket", "4", "a row came on another env's socket",
        "Answer each env on the socket it was asked on: an env socket's id is the order in which it was accepted."),
    ("repeated-field", "2", "a field comes twice in one row", "Write each field once in a row."),
    ("bad-flag", "2", "a flag is neither 0 nor 1", "Write DONE and TRUNC as 0 or 1, not as true, 1.0 or yes."),
    ("unknown-field", "2", "a row has a field that nobody knows",
        "Correct its spelling; trainers ignore what they do not know, so what it says is lost."),
    ("bad-info", "2", "INFO is not a percent-encoded JSON object",
        "Encode the object as JSON in UTF-8, then percent-encode everything but letters, digits and -._~."),
    ("malformed-row", "2", "a row cannot be read",
        "Compare it with the grammar, field by field: OBS=1,2;REW=0.5;DONE=0;ENV=0, and || between two rows."),
    ("no-demo-action", "3", "a game that acts itself does not say what it did",
        "With FEATURES=DEMO write INFO={\"demo_action\":[..]}, ACT numbers, percent-encoded, into each answer "
        "to a step."),
    ("trunc-without-done", "5", "TRUNC=1 came with DONE=0",
        "A truncated episode is over: send DONE=1;TRUNC=1 together."),
    ("bad-mask", "5m", "an action mask is not right",
        "Write one flag for each choice of each number, and leave each number a choice while the episode runs."),
    ("bad-agent", "7", "an agent's row is missing, or names another agent",
        "Write AGENT= in each row, number the agents of an env from 0, one group behind the other, and answer for all "
        "that acted, once, in one line for each env."),
    ("no-first-state", "6", "an engine of RLBASE sends no state behind its handshake",
        "With ENV_TYPE=RLBASE send one state line right behind the CONFIG line; or use MULTI, where nobody does."),
    # requests and answers
    ("no-answer", "5", "the engine does not answer",
        "Answer every request when its action has ended. Is the game paused, does it read another socket, or is the "
        "answer in a buffer that was not flushed?"),
    ("env-never-answered", "4", "an env that was asked never answers",
        "Answer every env that was asked, exactly once, in any order and in as many lines as you like."),
    ("two-answers", "4", "one request is answered twice",
        "Answer each asked env exactly once: every later observation would be one step old."),
    ("unasked", "4", "the engine sends a state that nobody asked for",
        "Send a state only as the answer to ACT=..; between requests an engine is silent."),
    ("unasked-env", "4", "an env answers that was not asked",
        "Answer only the envs that the request names; leave the others as they are."),
    ("number-missing", "5q", "FEATURES has SEQ, and answers have no number",
        "End each line that answers a request with the ;SEQ=n that stood at the end of the request; REFUSED too."),
    ("number-missing-in-calls", "5q", "FEATURES has SEQ, and answers to calls have no number",
        "End the answer to a call, too, with the ;SEQ=n that stood at the end of the call; REFUSED as well."),
    ("number-wrong", "5q", "an answer has another number than its request",
        "Echo the number of the very request that a line answers; do not count, and keep none from one to the next."),
    ("number-not-last", "5q", "the number of the request stands in the middle of the answer",
        "Write ;SEQ=n once, at the end of the line, behind the last field of the last row."),
    ("autoreset-wrong", "5a", "FEATURES has AUTORESET, and a reset asked ahead does not follow the end as asked",
        "Write the first state of the next episode, begun with the SEED and SET of its NEXT row, as a line of its own "
        "behind the last line of the answer that ends an episode; or leave AUTORESET out."),
    ("handshake-again", "3", "the handshake comes a second time",
        "Send the CONFIG line once, on the first connection alone."),
    ("env-refused", "3", "the engine does not take an env that its handshake promises",
        "Write as many envs in ENV_COUNT as the engine has, and take ENV=0 to ENV_COUNT-1."),
    ("ends-session", "10", "the engine ends the session",
        "Its own log says why. A request that follows the protocol must not end a session."),
    # resets and episodes
    ("reset-ignored", "5", "ACT=RESET does not begin a new episode",
        "When the value of ACT is RESET put this env back to a start, and answer with the first observation there."),
    ("resets-all", "5", "the reset of one env resets the others too", "Reset only the envs that the request names."),
    ("resets-itself", "5", "the engine resets an env by itself when its episode ends",
        "With DONE=1 send the episode's last observation, and leave the env there until ACT=RESET comes."),
    ("stale-reset", "5", "the answer to a reset is an observation of the episode before",
        "Compute the observation after the reset, not before it."),
    ("done-after-reset", "5", "an episode is over again right after its reset",
        "Clear the flag behind DONE when an episode begins, and what counts the steps up to a time limit."),
    ("never-done", "5", "no episode ends",
        "Send DONE=1 in the last step of an episode, or DONE=1;TRUNC=1 at a time limit."),
    ("limit-as-done", "5", "a time limit seems to end episodes by DONE=1 without TRUNC=1",
        "Where the limit ends it and not the game send DONE=1;TRUNC=1, with TRUNC in FEATURES: learners count on after "
        "it. Where the game does, show the time that is left in the observation."),
    ("one-step-late", "5", "an answer holds the state before the action",
        "Apply the action, let it end, and only then compute the observation and the reward."),
    # envs and actions
    ("wrong-env-acted", "4", "an action reaches another env than the one it names",
        "Take the env from ENV=i of each row, not from the row's place in the line."),
    ("action-ignored", "5", "no effect of the actions was seen",
        "Apply the numbers of ACT to the env before the state is computed."),
    ("same-trajectory", "4", "all envs have the same trajectory",
        "Give each env a state and a random generator of its own, seeded differently."),
    ("action-order", "5", "the numbers of an action are taken in another order, or not all of them",
        "Read the ACT numbers in the order of the row."),
    ("choice-refused", "3s", "the engine does not take a choice that its ACT_SPACE allows",
        "Take every integer that the space allows: DISCRETE(n) is 0 to n-1."),
    ("actions-clipped", "3s", "a part of ACT_SPACE does what its edge does",
        "Announce in ACT_SPACE what the game takes, and clip to that alone."),
    ("bound-refused", "3s", "the engine does not take an action at the bounds of its ACT_SPACE",
        "Take every number from the lowest to the highest, both included."),
    # spaces and values
    ("outside-obs-space", "3s", "an observation is outside OBS_SPACE",
        "Correct the bounds in OBS_SPACE, or clip what the game sends."),
    ("constant-observation", "5", "the observation never changes", "Compute it from the env's state in each step."),
    ("zero-reward", "5", "every reward is 0",
        "Send the step's reward in REW; without any there is nothing to learn from."),
    ("two-decimals", "2n", "numbers are rounded to two decimals",
        "Write the shortest text that reads back to the same float32 (%.9g, std::to_chars, float.ToString(\"R\"))."),
    ("rounded", "2n", "numbers are rounded",
        "Write the shortest text that reads back to the same float32: %.9g in C, std::setprecision(9) or std::to_chars "
        "in C++, float.ToString(\"R\") in C#; %f and a stream without setprecision lose digits."),
    # seeds
    ("seed-ignored", "5", "a seed changes nothing, or does not repeat an episode",
        "With FEATURES=SEED draw everything random of an episode from a generator that is seeded with all digits of "
        "SEED, and put all else of the env back where it began."),
    ("not-repeatable", "5", "the same seed and actions give another episode",
        "Draw everything random of an episode from the seeded generator, give each env one of its own, put all of its "
        "state back at a reset, and use a fixed time step."),
    ("remembers-episodes", "5", "a seed fixes the episode of a new engine, and not that of a used one",
        "Put back what a physics engine keeps, such as contacts: build its world anew at a reset. Until then a resumed "
        "run is not exact, and an evaluation depends on what was played before."),
    ("seed-refused", "9", "a seed that the protocol allows ends the session",
        "Read SEED as an unsigned integer of 64 bits: 0 to 2^63 - 1."),
    ("options-refused", "5", "OPTIONS are announced, and end the session",
        "With FEATURES=OPTIONS read a percent-encoded JSON object, and ignore keys that you do not know."),
    # how bytes arrive
    ("one-read-one-message", "1", "a message that arrives in pieces is not understood",
        "Collect bytes until a line feed comes; TCP may split and join messages anywhere."),
    ("short-reads", "1", "a message longer than about 1024 bytes is not understood",
        "Read until the line feed, however long the line is (section 9 has the limit)."),
    ("one-message-per-read", "1", "of several messages in one read only one is understood",
        "After a read, take every whole line out of the buffer, not only the first."),
    ("one-request-at-a-time", "4", "an env's request is not taken while another env's is open",
        "Take each env's request when it comes: at most one for each env is open, but they may come in several lines."),
    ("no-crlf", "1", "a line that ends in a carriage return and a line feed is not understood",
        "Ignore a carriage return before the line feed."),
    ("no-spaces", "2", "spaces around fields are not understood", "Trim spaces and tabs around each field and each =."),
    ("no-lower-case", "2", "keys in lower case are not understood",
        "Compare keys, and the word RESET, without regard to case."),
    ("unknown-key-refused", "2", "a key that the engine does not know is not skipped",
        "Skip fields of a request that you do not know: that is how the protocol grows."),
    ("empty-line-refused", "1", "an empty line is not skipped", "Skip empty lines."),
    ("numbers-not-read", "2n", "a number in another spelling is not understood",
        "Read every spelling of the grammar: 1, 1.0, +1, 1e0, .5, 5."),
    ("row-order", "4", "rows in another order are not understood", "Take the env from ENV=i; rows come in any order."),
    ("partial-batch", "4", "a request that names some envs only is not understood",
        "Take each row's env from ENV=i, not from its place; answer the envs that the request names, and leave the "
        "others as they are."),
    ("mixed-batch", "5", "a request with steps and resets is not understood",
        "Judge each row by itself: ACT=numbers is a step, ACT=RESET a new episode."),
    # sessions
    ("serves-once", "4", "after the first trainer has gone the next one is not served",
        "When the connection ends, forget the session and accept the next one, with a new handshake."),
    ("session-leaks", "4", "something of the session before reaches the next one",
        "Forget what was asked, and what was read of an unfinished line, when a connection ends."),
    ("dies-of-garbage", "10", "the engine dies, or hangs, when a trainer sends garbage",
        "Close the connection of a trainer that sends what cannot be read, and serve the next one."),
    ("dies-of-disconnect", "4", "the engine dies, or hangs, when a trainer goes away",
        "Treat an error or an end while reading or writing as the end of the session."),
    ("no-busy", "10", "a second trainer is not told that somebody else is served",
        "Send BUSY and a line feed to whoever connects meanwhile; without it he waits for a handshake."),
    ("disturbed-session", "4", "a further connection disturbs the session that is served",
        "Leave a connection alone that comes while a session is served, until that one has ended."),
    ("two-at-once", "4", "a second trainer is served while the first one is",
        "Greet the next trainer when the one before has gone: both would act on the same envs."),
    # calls
    ("bad-call", "8", "a call that the engine announces is not answered rightly",
        "Answer a call with one line at once, also without a tick."),
    # time
    ("nagle", "1", "messages are delayed by Nagle's algorithm",
        "Set TCP_NODELAY on every accepted socket, and write each message with one send."),
    ("slow", "4", "a step takes very long",
        "Run without a frame cap and with a fixed time step, and keep nothing that grows with each step."),
    # carriers
    ("shm-refused", "3", "shared memory is offered and cannot be used",
        "Correct the field that is named: docs/shared-memory.md has the header in section 2, the offer in section 3, "
        "and who takes a segment in section 5."),
    ("not-woken", "shm4", "a trainer that waits in shared memory is not woken",
        "After frame_seq was counted: a full fence, then, where client_flag is 1, set it to 0 and wake that futex. An "
        "engine that cannot writes 3 into engine_flag once."),
    ("carriers-differ", "4", "the same seed and actions give another episode over another carrier",
        "A carrier moves numbers; the game must not know which one it is."),
)
# fmt: on
