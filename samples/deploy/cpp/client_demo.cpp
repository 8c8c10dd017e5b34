// client_demo: the actions of a policy server for the observations on stdin.
//
//   client_demo ADDRESS PORT OBS_SIZE ACT_SIZE [NUM_ENVS] [TIMEOUT_MS] [CALLS]
//
// A line of stdin is one step: NUM_ENVS * OBS_SIZE numbers, and before them `reset=ENV` for each env in which an
// episode begins. CALLS: asks so many times for each, and says the median of a call in microseconds on stderr.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "policy_client.hpp"

int main(int count, char** arguments) {
    if (count < 5) {
        std::fprintf(stderr, "usage: client_demo ADDRESS PORT OBS_SIZE ACT_SIZE [NUM_ENVS] [TIMEOUT_MS] [CALLS]\n");
        return 2;
    }
    const auto number = [&](int i, int otherwise) { return count > i ? std::atoi(arguments[i]) : otherwise; };
    const int obs_size = number(3, 0), act_size = number(4, 0), num_envs = number(5, 1), calls = number(7, 1);
    ue_rl::PolicyClient client;
    bool well = client.connect(arguments[1], number(2, 0), obs_size, act_size, num_envs, number(6, 5000));
    const auto envs = static_cast<std::size_t>(num_envs);
    std::vector<float> actions(envs * static_cast<std::size_t>(act_size));
    std::vector<double> times;
    for (std::string line, word; well && std::getline(std::cin, line);) {
        std::vector<float> observations;
        std::vector<std::uint8_t> begins(envs);
        for (std::istringstream words(line); words >> word;) {
            if (word.rfind("reset=", 0) == 0) begins.at(static_cast<std::size_t>(std::atoi(word.c_str() + 6))) = 1;
            else observations.push_back(std::strtof(word.c_str(), nullptr));
        }
        observations.resize(envs * static_cast<std::size_t>(obs_size));
        for (int call = 0; well && call < calls; call++) {
            const auto begin = std::chrono::steady_clock::now();
            well = client.act(observations.data(), actions.data(), begins.data());
            const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
            times.push_back(took.count());
        }
        for (std::size_t i = 0; well && i < actions.size(); i++)  // nine digits are a float32, exactly
            std::printf("%.9g%c", static_cast<double>(actions[i]), i + 1 < actions.size() ? ' ' : '\n');
        std::fflush(stdout);
    }
    if (!well) return std::fprintf(stderr, "client_demo: %s\n", client.error().c_str()), 1;
    std::sort(times.begin(), times.end());
    if (calls > 1 && !times.empty()) std::fprintf(stderr, "%.1f\n", times[times.size() / 2]);
}
