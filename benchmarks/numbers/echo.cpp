// Shows its action as its observation: echo PORT. Or numbers through C++'s own ways: echo WAY IN OUT (float64 files).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>
#define UE_RL_BRIDGE_IMPLEMENTATION
#include "ue_rl_bridge.hpp"

class Echo : public ue_rl::MultiEnvBridge {
    std::vector<float> shown_ = std::vector<float>(1000);

public:
    using MultiEnvBridge::MultiEnvBridge;
    void HandleResetForEnv(int, const ue_rl::Reset&) override {}
    void HandleResponseActionsForEnv(int, const float* actions) override { shown_.assign(actions, actions + 1000); }
    void CreateStateForEnv(int, float* observation) override {
        std::memcpy(observation, shown_.data(), 1000 * sizeof(float));
    }
    float CalculateRewardForEnv(int, bool& done, bool&) override { return done = false, 0.0f; }
};

static double through(const std::string& way, double x) {
    if (way == "to_string") return std::strtod(std::to_string(x).c_str(), nullptr);
    std::ostringstream out;
    if (way == "<< precision 17") out.precision(17);
    out << x;
    return std::strtod(out.str().c_str(), nullptr);
}

int main(int count, char** words) {
    if (count == 4) {
        std::ifstream in(words[2], std::ios::binary);
        std::ofstream out(words[3], std::ios::binary);
        double x;
        while (in.read(reinterpret_cast<char*>(&x), sizeof x)) {
            x = through(words[1], x);
            out.write(reinterpret_cast<const char*>(&x), sizeof x);
        }
        return 0;
    }
    const double inf = std::numeric_limits<double>::infinity();
    ue_rl::Spec spec;
    spec.obs_size = 1000, spec.act_size = 1000, spec.act_space = ue_rl::Box(-inf, inf);
    for (int i = 0; i < 200; i++) spec.parameters.push_back({"p" + std::to_string(i), 0, -inf, inf});
    Echo echo(spec);
    ue_rl::Options options;
    options.port = std::atoi(words[1]);
    ue_rl::Server server(echo, options);
    return server.start() ? server.run(), 0 : (std::fprintf(stderr, "%s\n", server.error().c_str()), 1);
}
