// onnx_policy.hpp: runs a policy that ue_rl exported, with onnxruntime's C++ API. C++17, docs/deploy.md.
#pragma once

#include <onnxruntime_cxx_api.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
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
        std::string inputs, optional;
        for (std::size_t i = 0; i < session_.GetInputCount(); i++)
            inputs += (i ? ", " : "") + std::string(session_.GetInputNameAllocated(i, allocator).get());
        for (std::size_t i = 0; i < session_.GetOverridableInitializerCount(); i++)
            optional += session_.GetOverridableInitializerNameAllocated(i, allocator).get();
        needs_masks_ = inputs == "obs, action_masks";
        if (inputs != "obs" && !needs_masks_)
            throw std::runtime_error("the model's inputs are " + inputs + ", not obs alone: export a Dict " +
                                     "observation with flat_input=True; a recurrent model needs the policy server");
        if (needs_masks_)
            mask_size_ = size(session_.GetInputTypeInfo(1).GetTensorTypeAndShapeInfo().GetShape());
        else if (optional == "action_masks")
            mask_size_ =
                size(session_.GetOverridableInitializerTypeInfo(0).GetTensorTypeAndShapeInfo().GetShape());
        const Ort::TypeInfo in = session_.GetInputTypeInfo(0), out = session_.GetOutputTypeInfo(0);
        obs_shape_ = in.GetTensorTypeAndShapeInfo().GetShape();  // [-1, obs_size]; images [-1, height, width, channels]
        const auto has = size(obs_shape_), gives = size(out.GetTensorTypeAndShapeInfo().GetShape());
        if (has != obs_size || gives != act_size)
            throw std::runtime_error("the model has " + std::to_string(has) + " observation and " +
                                     std::to_string(gives) + " action numbers, the game " + std::to_string(obs_size) +
                                     " and " + std::to_string(act_size));
    }

    // The actions [n, act_size] for `observations` [n, obs_size]: one row per agent.
    // masks: [n, mask_size()], 1 = legal, of a model that was trained with masks; null: it takes none, or was exported
    // with `--masks optional` and every choice is legal.
    void act(const float* observations, std::int64_t n, float* actions, const float* masks = nullptr) {
        if (!masks && needs_masks_)
            throw std::runtime_error("the model must be told which choices are legal: give masks of " +
                                     std::to_string(mask_size_) + " flags a row, 1 = legal");
        if (masks && !mask_size_) throw std::runtime_error("the model takes no action masks: leave them out");
        for (std::int64_t i = 0; i < n * obs_size_; i++)  // an argmax would make an action of a NaN
            if (!std::isfinite(observations[i]))
                throw std::runtime_error("the observation of row " + std::to_string(i / obs_size_) +
                                         " holds NaN or infinity");
        std::vector<std::int64_t> in_shape = obs_shape_, out_shape = {n, act_size_};
        in_shape[0] = n;
        std::vector<Ort::Value> in;
        in.push_back(tensor(const_cast<float*>(observations), in_shape));
        if (masks) in.push_back(tensor(const_cast<float*>(masks), {n, mask_size_}));
        Ort::Value out = tensor(actions, out_shape);
        const char *const inputs[] = {"obs", "action_masks"}, *const outputs[] = {"actions"};
        session_.Run(Ort::RunOptions{nullptr}, inputs, in.data(), in.size(), outputs, &out, 1);
    }

    // Flags of one row of masks, one for each choice; 0: the model takes none.
    std::int64_t mask_size() const { return mask_size_; }

    // JSON: the spaces, names of the numbers, algorithm, normalisation, env steps of training, versions.
    const std::string& description() const { return description_; }

private:
    static Ort::SessionOptions one_thread() {  // the fastest for nets of this size, and the frame's threads stay free
        Ort::SessionOptions options;
        options.SetIntraOpNumThreads(1);
        return options;
    }
    // onnxruntime 1.29 and later reports machine and model to its maker, unless this is set before it starts.
    static const char* without_reports() {
#ifdef _WIN32
        if (!std::getenv("ORT_DISABLE_TELEMETRY")) _putenv_s("ORT_DISABLE_TELEMETRY", "1");
#else
        setenv("ORT_DISABLE_TELEMETRY", "1", 0);
#endif
        return "ue_rl";
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
    Ort::Env env_{ORT_LOGGING_LEVEL_ERROR, without_reports()};
    Ort::MemoryInfo memory_ = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    Ort::Session session_;
    std::vector<std::int64_t> obs_shape_;
    std::int64_t mask_size_ = 0;
    bool needs_masks_ = false;
    std::string description_;
};

}  // namespace ue_rl
