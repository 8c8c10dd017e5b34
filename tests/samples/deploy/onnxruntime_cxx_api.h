// A stand-in for onnxruntime's C++ header: the few types that samples/deploy/cpp uses, over the real library.
//
// OrtGetApiBase()->GetApi(version) returns a table of functions. A function's position in it never changes, since new
// ones are appended, so each is called by its position here. Those used are there since version 12. Each returns null
// or a status, except the ones that release.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#define ORTCHAR_T char

using OrtFunction = void (*)();
extern "C" {
struct OrtApiBase {
    const OrtFunction* (*GetApi)(std::uint32_t version);
    const char* (*GetVersionString)();
};
const OrtApiBase* OrtGetApiBase() noexcept;
}

enum OrtLoggingLevel { ORT_LOGGING_LEVEL_ERROR = 3 };
enum OrtAllocatorType { OrtArenaAllocator = 1 };
enum OrtMemType { OrtMemTypeDefault = 0 };

namespace Ort {

struct Exception : std::runtime_error {
    using runtime_error::runtime_error;
};

namespace detail {

using Handle = void*;

template <class Result, class... Arguments>
Result raw(int position, Arguments... arguments) {
    static const OrtFunction* const table = OrtGetApiBase()->GetApi(12);
    return reinterpret_cast<Result (*)(Arguments...)>(table[position])(arguments...);
}

template <class... Arguments>
void call(int position, Arguments... arguments) {
    if (Handle status = raw<Handle>(position, arguments...)) {
        const std::string text = raw<const char*>(2, static_cast<const void*>(status));
        raw<void>(93, status);
        throw Exception(text);
    }
}

template <class Out, class... Arguments>
Out get(int position, Arguments... arguments) {
    Out out{};
    call(position, arguments..., &out);
    return out;
}

template <int release>
struct Owned {
    Handle handle = nullptr;
    explicit Owned(Handle made) : handle(made) {}
    Owned(Owned&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
    Owned& operator=(Owned&& other) noexcept {
        std::swap(handle, other.handle);
        return *this;
    }
    ~Owned() {
        if (handle) raw<void>(release, handle);
    }
};

struct Free {
    Handle allocator;
    void operator()(char* text) const { call(76, allocator, static_cast<void*>(text)); }
};

}  // namespace detail

using AllocatedStringPtr = std::unique_ptr<char, detail::Free>;

struct AllocatorWithDefaultOptions {
    detail::Handle handle = detail::get<detail::Handle>(78);
};

struct Env : detail::Owned<92> {
    explicit Env(OrtLoggingLevel level, const char* name)
        : Owned(detail::get<detail::Handle>(3, static_cast<int>(level), name)) {}
};

struct MemoryInfo : detail::Owned<94> {
    using Owned::Owned;
    static MemoryInfo CreateCpu(OrtAllocatorType allocator, OrtMemType type) {
        return MemoryInfo(detail::get<detail::Handle>(69, static_cast<int>(allocator), static_cast<int>(type)));
    }
};

struct SessionOptions : detail::Owned<100> {
    SessionOptions() : Owned(detail::get<detail::Handle>(10)) {}
    SessionOptions& SetIntraOpNumThreads(int threads) {
        detail::call(24, handle, threads);
        return *this;
    }
};

struct RunOptions {
    explicit RunOptions(std::nullptr_t) {}
};

struct Value : detail::Owned<96> {
    using Owned::Owned;
    template <class T>
    static Value CreateTensor(const MemoryInfo& memory, T* data, std::size_t count, const std::int64_t* shape,
                              std::size_t axes) {
        static_assert(sizeof(T) == sizeof(float));
        constexpr int float32 = 1;
        return Value(detail::get<detail::Handle>(49, memory.handle, static_cast<void*>(data), count * sizeof(T), shape,
                                                 axes, float32));
    }
};

struct ConstTensorTypeAndShapeInfo {
    detail::Handle handle;
    std::vector<std::int64_t> GetShape() const {
        std::vector<std::int64_t> shape(detail::get<std::size_t>(61, handle));
        detail::call(62, handle, shape.data(), shape.size());
        return shape;
    }
};

struct TypeInfo : detail::Owned<98> {
    using Owned::Owned;
    ConstTensorTypeAndShapeInfo GetTensorTypeAndShapeInfo() const {
        return {detail::get<detail::Handle>(55, handle)};
    }
};

struct ModelMetadata : detail::Owned<118> {
    using Owned::Owned;
    AllocatedStringPtr LookupCustomMetadataMapAllocated(const char* key,
                                                        const AllocatorWithDefaultOptions& allocator) const {
        return {detail::get<char*>(116, handle, allocator.handle, key), {allocator.handle}};
    }
};

struct Session : detail::Owned<95> {
    Session(const Env& env, const ORTCHAR_T* file, const SessionOptions& options)
        : Owned(detail::get<detail::Handle>(7, env.handle, file, options.handle)) {}
    std::size_t GetInputCount() const { return detail::get<std::size_t>(30, handle); }
    TypeInfo GetInputTypeInfo(std::size_t i) const { return TypeInfo(detail::get<detail::Handle>(33, handle, i)); }
    TypeInfo GetOutputTypeInfo(std::size_t i) const { return TypeInfo(detail::get<detail::Handle>(34, handle, i)); }
    AllocatedStringPtr GetInputNameAllocated(std::size_t i, const AllocatorWithDefaultOptions& allocator) const {
        return {detail::get<char*>(36, handle, i, allocator.handle), {allocator.handle}};
    }
    std::size_t GetOverridableInitializerCount() const { return detail::get<std::size_t>(32, handle); }
    TypeInfo GetOverridableInitializerTypeInfo(std::size_t i) const {
        return TypeInfo(detail::get<detail::Handle>(35, handle, i));
    }
    AllocatedStringPtr GetOverridableInitializerNameAllocated(std::size_t i,
                                                              const AllocatorWithDefaultOptions& allocator) const {
        return {detail::get<char*>(38, handle, i, allocator.handle), {allocator.handle}};
    }
    ModelMetadata GetModelMetadata() const { return ModelMetadata(detail::get<detail::Handle>(111, handle)); }
    void Run(const RunOptions&, const char* const* input_names, const Value* inputs, std::size_t input_count,
             const char* const* output_names, Value* outputs, std::size_t output_count) {
        static_assert(sizeof(Value) == sizeof(detail::Handle));
        detail::call(9, handle, static_cast<void*>(nullptr), input_names,
                     reinterpret_cast<const detail::Handle*>(inputs), input_count, output_names, output_count,
                     reinterpret_cast<detail::Handle*>(outputs));
    }
};

}  // namespace Ort
