// reach: an engine to train on and to measure with; the game is reach_game.hpp.
//
//   reach [--port 7777] [--num-envs 8] [--obs-size 6] [--cost-us 0] [--max-steps 60] [--seed 0]
//         [--shm] [--shm-name NAME] [--token-file FILE] [--per-env] [--heuristic EPISODES] [--demo]
//
// --shm offers shared memory over TCP, --shm-name serves shm://NAME instead. --per-env takes the callbacks for single
// envs, to compare. --cost-us: microseconds that a step of all envs costs besides.
// --demo: the script plays while a trainer records it (ue-rl demos record).
// --heuristic: a script plays so many episodes, without a trainer, and each step is shown.
#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#define UE_RL_BRIDGE_IMPLEMENTATION
#include "reach_game.hpp"

namespace {

struct Settings : reach::Settings {
    int port = 7777, heuristic = 0;
    bool shm = false, per_env = false;
    std::string shm_name, token;
};

ue_rl::Server* running = nullptr;
void stop(int) {
    if (running) running->stop();
}

bool read_settings(int count, char** arguments, Settings& settings) {
    for (int i = 1; i < count; i++) {
        const std::string name = arguments[i];
        if (name == "--shm") {
            settings.shm = true;
        } else if (name == "--demo") {
            settings.demo = true;
        } else if (name == "--per-env") {
            settings.per_env = true;
        } else if (name == "--shm-name" && i + 1 < count) {
            settings.shm_name = arguments[++i];
        } else if (name == "--token-file" && i + 1 < count) {
            std::ifstream file(arguments[++i]);
            if (!(file >> settings.token)) return false;
        } else if (i + 1 < count) {
            const char *text = arguments[++i], *end = text + std::strlen(text);
            std::int64_t value = 0;
            const auto [at, error] = std::from_chars(text, end, value);
            int* const number = name == "--port"        ? &settings.port
                                : name == "--num-envs"  ? &settings.num_envs
                                : name == "--obs-size"  ? &settings.obs_size
                                : name == "--cost-us"   ? &settings.cost_us
                                : name == "--heuristic" ? &settings.heuristic
                                : name == "--max-steps" ? &settings.max_steps
                                                        : nullptr;
            if (error != std::errc() || at != end || value < 0 || (!number && name != "--seed")) return false;
            if (number) *number = static_cast<int>(value);
            else settings.seed = value;
        } else {
            return false;
        }
    }
    return true;
}

int serve(ue_rl::Bridge& bridge, const Settings& settings) {
    ue_rl::Options options;
    options.port = settings.port;
    options.shared_memory = settings.shm;
    options.shm_name = settings.shm_name;
    options.token = settings.token;
    int left = settings.heuristic;
    if (left || settings.demo) {
        options.heuristic = [](const ue_rl::AgentView& view, float* action) {  // towards the target, and not too fast
            const float* seen = view.observation;
            for (int i = 0; i < 2; i++) action[i] = std::clamp(4 * seen[4 + i] - 2 * seen[2 + i], -1.0f, 1.0f);
        };
        if (left) options.show = [&](const ue_rl::AgentView& view) {
            std::printf("%s\n", ue_rl::text_of(bridge, view).c_str());
            if (view.done && --left == 0) running->stop();
        };
    }
    ue_rl::Server server(bridge, options);
    if (!server.start()) return std::fprintf(stderr, "reach: %s\n", server.error().c_str()), 1;
    running = &server;
    std::signal(SIGINT, stop);
    std::signal(SIGTERM, stop);
    if (!settings.heuristic) std::printf("PORT %d\n", server.port());
    std::fflush(stdout);
    server.run();
    running = nullptr;
    return server.error().empty() ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
    Settings settings;
    if (!read_settings(count, arguments, settings)) {
        std::fprintf(
            stderr,
            "usage: reach [--port N] [--num-envs N] [--obs-size N] [--cost-us N] [--max-steps N] [--seed N] [--shm] "
            "[--shm-name NAME] [--token-file FILE] [--per-env] [--heuristic EPISODES] [--demo]\n");
        return 2;
    }
    if (settings.per_env) {
        reach::PerEnvReach bridge(settings);
        return serve(bridge, settings);
    }
    reach::VectorReach bridge(settings);
    return serve(bridge, settings);
}
