// play_reach: the game of samples/cpp plays a trained model itself, by the callbacks that else follow a trainer.
//
//   play_reach MODEL.onnx [EPISODES] [SEED]
//
// Prints each episode's return and length: those of `ue-rl play MODEL.onnx --episodes .. --seed ..` with the engine
// `reach --num-envs 1`, since observations and actions are the same bits.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#define UE_RL_BRIDGE_IMPLEMENTATION
#include "../../cpp/reach_game.hpp"
#include "onnx_policy.hpp"

// Plays one env of any game that trains over a VectorBridge.
void play(ue_rl::VectorBridge& game, ue_rl::OnnxPolicy& policy, int episodes, std::int64_t seed) {
    std::vector<float> obs(static_cast<std::size_t>(game.spec.obs_size)), reward(1);
    std::vector<float> action(static_cast<std::size_t>(game.spec.act_size));
    std::vector<std::uint8_t> done(1), truncated(1);
    ue_rl::States states;
    states.obs = obs.data();
    states.rewards = reward.data();
    states.dones = done.data();
    states.truncateds = truncated.data();
    for (int episode = 0; episode < episodes; episode++) {
        double sum = 0;
        int steps = 0;
        game.ResetEnvs({{0, episode ? -1 : seed, ""}}, states);
        for (done[0] = truncated[0] = 0; !done[0] && !truncated[0]; steps++) {
            policy.act(obs.data(), 1, action.data());
            game.StepEnvs(action.data(), {0}, states);
            sum += static_cast<double>(reward[0]);
        }
        std::printf("%.17g %d\n", sum, steps);
    }
}

int main(int count, char** arguments) try {
    if (count < 2) return std::fprintf(stderr, "usage: play_reach MODEL.onnx [EPISODES] [SEED]\n"), 2;
    reach::Settings settings;
    settings.num_envs = 1;
    reach::VectorReach game(settings);
    ue_rl::OnnxPolicy policy(arguments[1], game.spec.obs_size, game.spec.act_size);
    play(game, policy, count > 2 ? std::atoi(arguments[2]) : 10, count > 3 ? std::atoll(arguments[3]) : 0);
} catch (const std::exception& error) {
    return std::fprintf(stderr, "play_reach: %s\n", error.what()), 1;
}
