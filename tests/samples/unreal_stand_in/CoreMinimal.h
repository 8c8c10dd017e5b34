// Stands in for the few types of Unreal that samples/unreal uses: it is compiled and run without the engine.
// Ours, written from the public documentation: names and signatures are Unreal's, the code behind them is not.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using int32 = std::int32_t;
using int64 = long long;  // as on Linux; std::int64_t is a long there
using uint8 = std::uint8_t;
using uint32 = std::uint32_t;
using TCHAR = char16_t;

#define TEXT(Text) u##Text
#define INDEX_NONE -1
#define PLATFORM_LINUX 1
#define PLATFORM_WINDOWS 0
#define THIRD_PARTY_INCLUDES_START
#define THIRD_PARTY_INCLUDES_END

// Names that Unreal takes as macros, too; nothing that is included may use them for itself.
#define check(Expression)
#define verify(Expression) (Expression)
#define ensure(Expression) (Expression)
#define unimplemented()
#define PI (3.1415926535897932f)
#define LOCTEXT(Key, Text) Text

// -- what UnrealHeaderTool reads, and what it writes: see generated_code() in tests/samples/test_unreal.py

#define UCLASS(...)
#define USTRUCT(...)
#define UENUM(...)
#define UPROPERTY(...)
#define UFUNCTION(...)
#define STAND_IN_JOIN_(A, B, C) A##B##C
#define STAND_IN_JOIN(A, B, C) STAND_IN_JOIN_(A, B, C)
#define GENERATED_BODY() STAND_IN_JOIN(CURRENT_FILE_ID, __LINE__, _GENERATED_BODY)

// -- containers

template <class T>
class TArray
{
public:
	int32 Num() const { return static_cast<int32>(Items.size()); }
	void Add(const T& Item) { Items.push_back(Item); }
	void Init(const T& Item, int32 Count) { Items.assign(static_cast<std::size_t>(Count), Item); }
	void SetNum(int32 Count) { Items.resize(static_cast<std::size_t>(Count)); }
	void SetNumUninitialized(int32 Count) { SetNum(Count); }
	void Reset() { Items.clear(); }
	int32 Remove(const T& Item)
	{
		const int32 Before = Num();
		Items.erase(std::remove(Items.begin(), Items.end(), Item), Items.end());
		return Before - Num();
	}
	decltype(auto) GetData() { return Items.data(); }
	decltype(auto) GetData() const { return Items.data(); }
	decltype(auto) operator[](int32 Index) { return Items.at(static_cast<std::size_t>(Index)); }
	decltype(auto) operator[](int32 Index) const { return Items.at(static_cast<std::size_t>(Index)); }
	auto begin() const { return Items.begin(); }
	auto end() const { return Items.end(); }

	template <class Predicate>
	int32 IndexOfByPredicate(Predicate Matches) const
	{
		for (int32 Index = 0; Index < Num(); Index++)
		{
			if (Matches((*this)[Index]))
			{
				return Index;
			}
		}
		return INDEX_NONE;
	}

private:
	std::vector<T> Items;
};

template <class T>
class TSharedPtr
{
public:
	TSharedPtr() = default;
	TSharedPtr(std::shared_ptr<T> Given) : Held(std::move(Given)) {}
	void Reset() { std::shared_ptr<T>().swap(Held); }
	T* operator->() const { return Held.get(); }
	T& operator*() const { return *Held; }
	explicit operator bool() const { return Held != nullptr; }

private:
	std::shared_ptr<T> Held;
};

template <class T, class... Arguments>
TSharedPtr<T> MakeShared(Arguments&&... Given)
{
	return std::make_shared<T>(std::forward<Arguments>(Given)...);
}

template <class T>
using TObjectPtr = T*;

// -- text

namespace StandIn
{
	inline std::string ToUtf8(const std::u16string& Text)
	{
		std::string Bytes;
		for (const char16_t Unit : Text)  // tests have no surrogates
		{
			if (Unit < 0x80)
			{
				Bytes += static_cast<char>(Unit);
			}
			else
			{
				Bytes += static_cast<char>(Unit < 0x800 ? 0xC0 | Unit >> 6 : 0xE0 | Unit >> 12);
				if (Unit >= 0x800)
				{
					Bytes += static_cast<char>(0x80 | (Unit >> 6 & 63));
				}
				Bytes += static_cast<char>(0x80 | (Unit & 63));
			}
		}
		return Bytes;
	}

	inline std::u16string ToUtf16(const char* Bytes)
	{
		std::u16string Text;
		while (const auto First = static_cast<unsigned char>(*Bytes++))
		{
			unsigned Code = First < 0x80 ? First : First < 0xE0 ? First & 31u : First & 15u;
			for (int More = First < 0x80 ? 0 : First < 0xE0 ? 1 : 2; More; More--)
			{
				Code = Code << 6 | (static_cast<unsigned char>(*Bytes++) & 63u);
			}
			Text += static_cast<char16_t>(Code);
		}
		return Text;
	}

	inline std::string Shown(const TCHAR* Text) { return ToUtf8(Text); }
	inline std::string Shown(int32 Number) { return std::to_string(Number); }

	// %s and %d, each of which needs an argument of its type.
	template <class... Arguments>
	std::string Format(const TCHAR* Pattern, const Arguments&... Given)
	{
		const std::vector<std::string> Parts = {Shown(Given)...};
		std::u16string Text;
		std::string Out;
		std::size_t Used = 0;
		for (; *Pattern; Pattern++)
		{
			if (*Pattern == u'%')
			{
				Out += ToUtf8(Text) + Parts.at(Used++);
				Text.clear();
				Pattern++;
			}
			else
			{
				Text += *Pattern;
			}
		}
		return Out + ToUtf8(Text);
	}
}

#define TCHAR_TO_UTF8(Text) (StandIn::ToUtf8(static_cast<const TCHAR*>(Text)).c_str())
#define UTF8_TO_TCHAR(Text) (StandIn::ToUtf16(Text).c_str())

class FString
{
public:
	FString() = default;
	FString(const TCHAR* Given) : Text(Given) {}
	const TCHAR* operator*() const { return Text.c_str(); }
	bool operator==(const FString& Other) const { return Text == Other.Text; }
	bool IsEmpty() const { return Text.empty(); }

private:
	std::u16string Text;
};

#define DEFINE_LOG_CATEGORY_STATIC(Category, Level, Most) static const char* const Category = #Category
#define UE_LOG(Category, Verbosity, Pattern, ...) \
	std::fprintf(stderr, "%s: %s: %s\n", Category, #Verbosity, StandIn::Format(Pattern, ##__VA_ARGS__).c_str())

// -- mathematics

struct FMath
{
	template <class T>
	static T Max(T A, T B) { return A < B ? B : A; }
	template <class T>
	static T Abs(T A) { return A < 0 ? -A : A; }
};

struct FMemory
{
	static void Memcpy(void* To, const void* From, std::size_t Count) { std::memcpy(To, From, Count); }
};

struct FVector
{
	double X = 0, Y = 0, Z = 0;
	FVector() = default;
	FVector(double InX, double InY, double InZ) : X(InX), Y(InY), Z(InZ) {}
};

struct FRotator
{
	static const FRotator ZeroRotator;
};
inline const FRotator FRotator::ZeroRotator;

class FRandomStream
{
public:
	explicit FRandomStream(int32 InSeed) { Initialize(InSeed); }
	void Initialize(int32 InSeed) { Seed = static_cast<uint32>(InSeed); }
	float FRandRange(float Low, float High)
	{
		Seed = Seed * 196314165u + 907633515u;
		return Low + (High - Low) * static_cast<float>(Seed >> 8) / 16777216.0f;
	}

private:
	uint32 Seed = 0;
};

inline uint32 GetTypeHash(int64 Value) { return static_cast<uint32>(Value) + static_cast<uint32>(Value >> 32) * 23u; }

using FDelegateHandle = int32;

class UObject
{
public:
	virtual ~UObject() = default;
	FString StandInName;
	FString GetPathName() const { return StandInName; }
};
class UClass : public UObject
{
};
class UWorld;

template <class T>
class TSubclassOf
{
public:
	TSubclassOf() = default;
	TSubclassOf(UClass* Given) : Class(Given) {}
	operator UClass*() const { return Class; }

private:
	UClass* Class = nullptr;
};
