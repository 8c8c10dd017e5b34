// Carts on a line: keep each near 0. The action pushes, and an episode has 100 steps.
//   g++ -std=c++17 -O2 -pthread -I samples/cpp -o carts samples/fifty_lines/carts.cpp -lrt && ./carts [PORT]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>
#define UE_RL_BRIDGE_IMPLEMENTATION
#include "ue_rl_bridge.hpp"

class Carts : public ue_rl::MultiEnvBridge {
    struct Cart {
        float x = 0, speed = 0;
        int steps = 0;
        std::mt19937_64 random;
    };
    std::vector<Cart> carts_;
    Cart& at(int env) { return carts_[static_cast<std::size_t>(env)]; }

public:
    explicit Carts(const ue_rl::Spec& spec) : MultiEnvBridge(spec), carts_(static_cast<std::size_t>(spec.num_envs)) {
        for (int env = 0; env < spec.num_envs; env++) at(env).random.seed(static_cast<std::uint64_t>(env));
    }
    void HandleResetForEnv(int env, const ue_rl::Reset& reset) override {
        if (reset.seed >= 0) at(env).random.seed(static_cast<std::uint64_t>(reset.seed));
        at(env).x = static_cast<float>(at(env).random() % 2001) / 1000.0f - 1.0f;
        at(env).speed = 0, at(env).steps = 0;
    }
    void HandleResponseActionsForEnv(int env, const float* actions) override {  // one step of the game
        at(env).x += at(env).speed += 0.1f * actions[0];
        at(env).steps++;
    }
    void CreateStateForEnv(int env, float* observation) override {  // after a reset, too
        observation[0] = at(env).x, observation[1] = at(env).speed;
    }
    float CalculateRewardForEnv(int env, bool& done, bool& truncated) override {  // the trainer begins the next episode
        done = std::fabs(at(env).x) > 3.0f, truncated = !done && at(env).steps >= 100;
        return 1.0f - std::fabs(at(env).x);
    }
};

int main(int count, char** arguments) {
    ue_rl::Spec spec;
    spec.obs_size = 2, spec.num_envs = 4, spec.features = {ue_rl::Feature::Seed, ue_rl::Feature::Trunc};
    Carts carts(spec);
    ue_rl::Options options;
    options.port = count > 1 ? std::atoi(arguments[1]) : 7777;
    ue_rl::Server server(carts, options);
    return server.start() ? server.run(), 0 : (std::fprintf(stderr, "%s\n", server.error().c_str()), 1);
}  // a game with a loop of its own calls server.tick() once a frame, in place of server.run()
