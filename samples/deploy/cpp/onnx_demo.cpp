// onnx_demo: the actions of a model for the observations on stdin, one row a line, all rows in one batch.
//
//   onnx_demo MODEL.onnx OBS_SIZE ACT_SIZE [CALLS [FLAGS]] < observations.txt
//
// CALLS: asks so many times and says the median of a call in microseconds on stderr. FLAGS: behind the numbers of each
// row stand so many flags of its legal choices, 1 = legal.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "onnx_policy.hpp"

int main(int count, char** arguments) try {
    if (count < 4) return std::fprintf(stderr, "usage: onnx_demo MODEL.onnx OBS_SIZE ACT_SIZE [CALLS [FLAGS]]\n"), 2;
    const int obs_size = std::atoi(arguments[2]), act_size = std::atoi(arguments[3]);
    ue_rl::OnnxPolicy policy(arguments[1], obs_size, act_size);
    const int flags = count > 5 ? std::atoi(arguments[5]) : 0;
    std::vector<float> observations, masks;
    int column = 0;
    for (float number; std::scanf("%f", &number) == 1; column = (column + 1) % (obs_size + flags))
        (column < obs_size ? observations : masks).push_back(number);
    const std::size_t rows = observations.size() / static_cast<std::size_t>(obs_size);
    std::vector<float> actions(rows * static_cast<std::size_t>(act_size));
    std::vector<double> times;
    for (int calls = std::max(1, count > 4 ? std::atoi(arguments[4]) : 1); calls > 0; calls--) {
        const auto begin = std::chrono::steady_clock::now();
        policy.act(observations.data(), static_cast<std::int64_t>(rows), actions.data(),
                   flags ? masks.data() : nullptr);
        times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    }
    for (std::size_t i = 0; i < actions.size(); i++)  // nine digits are a float32, exactly
        std::printf("%.9g%c", static_cast<double>(actions[i]),
                    (i + 1) % static_cast<std::size_t>(act_size) ? ' ' : '\n');
    std::sort(times.begin(), times.end());
    if (times.size() > 1) std::fprintf(stderr, "%.2f\n", times[times.size() / 2]);
} catch (const std::exception& error) {
    return std::fprintf(stderr, "onnx_demo: %s\n", error.what()), 1;
}
