// onnx_policy.hpp: runs a policy that ue_rl exported, with onnxruntime's C++ API. C++17, docs/deploy.md.
#pragma once

#include <onnxruntime_cxx_api.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace ue_rl {

// What is wrong comes as a std::exception whose what() says it. One object may be used by several threads at once.
class OnnxPolicy {
public:
    // obs_size, act_size: numbers of one observation and of one action, as the game has them.
    OnnxPolicy(const std::filesystem::path& file, std::int64_t obs_size, std::int64_t act_size)
        : obs_size_(obs_size), act_size_(act_size), session_(env_, file.c_str(), one_thread()) {
        Ort::AllocatorWithDefaultOptions allocator;
        const auto text = session_.GetModelMetadata().LookupCustomMetadataMapAllocated("ue_rl", allocator);
        if (!text) throw std::runtime_error("the model has no description: export it with ue_rl");
        description_ = text.get();
        if (description_.find("\"format\": 1") == std::string::npos)
            throw std::runtime_error("the model's description has another format than 1: it is of a later ue_rl");
        std::string inputs;
        for (std::size_t i = 0; i < session_.GetInputCount(); i++)
            inputs += (i ? ", " : "") + std::string(session_.GetInputNameAllocated(i, allocator).get());
        if (inputs != "obs")
            throw std::runtime_error("the model's inputs are " + inputs + ", not obs alone: export a Dict " +
                                     "observation with flat_input=True; a recurrent model needs the policy server");
        const Ort::TypeInfo in = session_.GetInputTypeInfo(0), out = session_.GetOutputTypeInfo(0);
        obs_shape_ = in.GetTensorTypeAndShapeInfo().GetShape();  // [-1, obs_size]; images [-1, height, width, channels]
        const auto has = size(obs_shape_), gives = size(out.GetTensorTypeAndShapeInfo().GetShape());
        if (has != obs_size || gives != act_size)
            throw std::runtime_error("the model has " + std::to_string(has) + " observation and " +
                                     std::to_string(gives) + " action numbers, the game " + std::to_string(obs_size) +
                                     " and " + std::to_string(act_size));
    }

    // The actions [n, act_size] for `observations` [n, obs_size]: one row per agent.
    void act(const float* observations, std::int64_t n, float* actions) {
        for (std::int64_t i = 0; i < n * obs_size_; i++)  // an argmax would make an action of a NaN
            if (!std::isfinite(observations[i]))
                throw std::runtime_error("the observation of row " + std::to_string(i / obs_size_) +
                                         " holds NaN or infinity");
        std::vector<std::int64_t> in_shape = obs_shape_, out_shape = {n, act_size_};
        in_shape[0] = n;
        const Ort::Value in = tensor(const_cast<float*>(observations), in_shape);
        Ort::Value out = tensor(actions, out_shape);
        const char *const inputs[] = {"obs"}, *const outputs[] = {"actions"};
        session_.Run(Ort::RunOptions{nullptr}, inputs, &in, 1, outputs, &out, 1);
    }

    // JSON: the spaces, names of the numbers, algorithm, normalisation, env steps of training, versions.
    const std::string& description() const { return description_; }

private:
    static Ort::SessionOptions one_thread() {  // the fastest for nets of this size, and the frame's threads stay free
        Ort::SessionOptions options;
        options.SetIntraOpNumThreads(1);
        return options;
    }
    static std::int64_t size(const std::vector<std::int64_t>& shape) {  // of one row
        if (shape.empty()) return 0;
        return std::accumulate(shape.begin() + 1, shape.end(), std::int64_t{1}, std::multiplies<>());
    }
    Ort::Value tensor(float* data, const std::vector<std::int64_t>& shape) const {
        const auto count = static_cast<std::size_t>(shape[0] * size(shape));
        return Ort::Value::CreateTensor<float>(memory_, data, count, shape.data(), shape.size());
    }

    std::int64_t obs_size_, act_size_;
    Ort::Env env_{ORT_LOGGING_LEVEL_ERROR, "ue_rl"};
    Ort::MemoryInfo memory_ = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    Ort::Session session_;
    std::vector<std::int64_t> obs_shape_;
    std::string description_;
};

}  // namespace ue_rl
