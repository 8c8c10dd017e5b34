"""What a client of RLlink can do wrong, by name; and from a sentence of RLlinkServer to its name."""

from __future__ import annotations

import re

from ue_rl.compliance.mistakes import Mistake

_PAGE = "docs/rllink.md, Clients of your own"

# fmt: off
RLLINK_MISTAKES: dict[str, Mistake] = {
    name: Mistake(name, title, _PAGE, cure)
    for name, title, cure in (
        # the connection
        ("no-client", "no client connects",
            "Dial 127.0.0.1 and this port, again and again while nobody listens. RLlib's server listens, you connect."),
        ("says-nothing", "the client connects, and then says nothing",
            "Ask for the config (GET_CONFIG) and the weights (GET_STATE) at once; PING is for the curious."),
        ("asks-too-late", "episodes come before the config or the weights were asked for",
            "Send GET_CONFIG and GET_STATE first: the answers say how many steps are wanted and which weights play."),
        ("unknown-message", "the server is sent a message that it does not take",
            "Send PING, GET_CONFIG, GET_STATE, EPISODES and EPISODES_AND_GET_STATE only."),
        ("bad-frame", "a message has no right header",
            "Write eight ASCII digits with leading zeros, the length of the body in bytes, then the body."),
        ("bad-body", "a message cannot be read",
            "Write msgpack with strings as str and data as bin; JSON for Ray 2.41 to 2.48 alone."),
        ("short-reads", "an answer that arrives in pieces is not understood",
            "Read until eight bytes of header and then the whole body are there; TCP splits messages anywhere."),
        # episodes
        ("no-episodes", "no episodes come",
            "With the weights play as many env-steps as RLlib wants, and send them: EPISODES_AND_GET_STATE."),
        ("too-few-steps", "a message has fewer env-steps than RLlib wants: both would wait for ever",
            "Send at least train_batch_size_per_learner x learners / env runners steps, of all envs together."),
        ("missing-key", "an episode lacks what RLlib reads: its listener would end, and nobody would answer",
            "Send all keys of SingleAgentEpisode.get_state(), most of them None."),
        ("bad-array", "an array of an episode is not what it must be",
            "Send T + 1 observations and infos, T of everything else, as one plain array of numbers each."),
        ("finalized-infos", "infos are sent as an array: RLlib's listener would end",
            "Send infos as a list of T + 1 maps, with finalized false."),
        ("broken-episode", "the parts of an episode do not fit together",
            "A part goes on under the same id: t_started counts the steps before it, its first observation is the "
            "last one of the part before."),
        ("wrong-count", "a number of steps is not the sum of what was sent", "Count the steps of the episodes sent."),
        ("wrong-logits", "action_dist_inputs are not those of the weights that were sent last",
            "Use the weights of each SET_STATE from the next step on, and the activation that the config says."),
        ("wrong-logp", "action_logp is not the log-probability of the action",
            "Take the action as it was drawn, not as the engine gets it; sum over the numbers of an action."),
        ("wrong-seq", "weights_seq_no is not the number of the weights that were sent last",
            "Leave it out, or send the number of the last SET_STATE."),
        ("bad-episode", "an episode is not right",
            "Compare it with what RLlib's SingleAgentEpisode.get_state() gives."),
        # servers that misbehave
        ("impatient", "the client does not wait for a state that comes late",
            "Wait as long as an update takes, minutes for large batches; say nothing meanwhile."),
        ("seq-taken-for-identity", "weights whose sequence number came before are not used",
            "Use the weights of every answer: RLlib sends a number twice, with other weights."),
        ("old-layers", "the client plays on by the layers that it had",
            "Rebuild the network from each state, or refuse by name what cannot be rebuilt."),
        ("ignores-layers", "the client plays although it was sent layers that it cannot know",
            "Refuse by name parameters that are not understood: they are a part of the policy."),
        ("plays-without-weights", "episodes come although no weights were sent", "Wait for SET_STATE."),
        ("no-reconnect", "the client does not come back after the connection has ended",
            "Dial again: RLlib's server hangs up on errors, and listens again after 5 seconds."),
        ("runs-pickles", "the client runs a pickle that the server sends",
            "Read SET_CONFIG's pickle as data, or let a flag say what is needed; refuse arrays of another kind than "
            "numbers."),
        ("reads-on", "the client plays on after an answer that cannot be read",
            "Hang up on a header that is no number of eight digits, or a body that is not what was asked for."),
    )
}
# fmt: on

_OF_SENTENCES = (
    (r"nobody had said", "asks-too-late"),
    (r"a message that a client does not send", "unknown-message"),
    (r"inside a message|begins with its length|100 MB or more", "bad-frame"),
    (r"not msgpack|no map; got|no JSON", "bad-body"),
    (r"too few steps", "too-few-steps"),
    (r"timesteps: ", "wrong-count"),
    (r"infos[.:].*listener", "finalized-infos"),
    (r"missing|RLlib's learner needs", "missing-key"),
    (r"(id_|t_started|t|is_terminated, is_truncated): |the part before", "broken-episode"),
    (r"action_dist_inputs: not those", "wrong-logits"),
    (r"action_logp: not that", "wrong-logp"),
    (r"weights_seq_no: ", "wrong-seq"),
    (r"(observations|actions|rewards|infos|action_\w+)(\.finalized)?: ", "bad-array"),
)


def name_of(sentence: str) -> str:
    """The mistake that a sentence of RLlinkServer is about."""
    return next((name for pattern, name in _OF_SENTENCES if re.search(pattern, sentence)), "bad-episode")
