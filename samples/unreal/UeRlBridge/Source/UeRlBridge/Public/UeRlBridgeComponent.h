// The engine's side of ue_rl as an actor component. Derive from it in Blueprint or C++ and override the events.
#pragma once

#include "CoreMinimal.h"
#include "Components/ActorComponent.h"
#include "UeRlBridgeComponent.generated.h"

UENUM(BlueprintType)
enum class EUeRlChannel : uint8
{
	/** One connection for all envs: a request for all of them arrives at once. */
	Shared,
	/** A connection for each env. */
	PerEnv,
	/** The trainer chooses. */
	Any,
};

UENUM(BlueprintType)
enum class EUeRlSpace : uint8
{
	/** Numbers between Low and High. */
	Box,
	/** One number: which of Sizes[0] choices. */
	Discrete,
	/** A choice for each of Sizes. */
	MultiDiscrete,
	/** Sizes[0] flags. */
	MultiBinary,
};

/** What the numbers of an action, an observation or a part of it mean. */
USTRUCT(BlueprintType)
struct FUeRlSpace
{
	GENERATED_BODY()

	/** Of a part of the observation. */
	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl")
	FString Name;

	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl")
	EUeRlSpace Kind = EUeRlSpace::Box;

	/** Box: one bound for all numbers, or one for each. Empty: none. */
	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl")
	TArray<double> Low;

	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl")
	TArray<double> High;

	/** Box: its shape; empty: all numbers, or where parts have names as many as there are bounds. */
	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl")
	TArray<int32> Sizes;

	static FUeRlSpace MakeBox(double Lowest, double Highest)
	{
		FUeRlSpace Space;
		Space.Low.Add(Lowest);
		Space.High.Add(Highest);
		return Space;
	}

	static FUeRlSpace MakeDiscrete(int32 Choices)
	{
		FUeRlSpace Space;
		Space.Kind = EUeRlSpace::Discrete;
		Space.Sizes.Add(Choices);
		return Space;
	}
};

/** A number of the game that a trainer may set, for all envs or for one. */
USTRUCT(BlueprintType)
struct FUeRlParameter
{
	GENERATED_BODY()

	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl")
	FString Name;

	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl")
	double Value = 0.0;

	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl")
	double Low = -1.0e9;

	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl")
	double High = 1.0e9;
};

/**
 * Put one on an actor of the level. It listens from BeginPlay to EndPlay, and serves one trainer after the other.
 *
 * It works at the start of each tick of the world, before anything in it has moved: answers what the last tick has led
 * to, waits for the trainer, hands the actions out. All events are called in the game thread.
 */
UCLASS(Blueprintable, ClassGroup = (UeRl), meta = (BlueprintSpawnableComponent))
class UERLBRIDGE_API UUeRlBridgeComponent : public UActorComponent
{
	GENERATED_BODY()

public:
	/** 127.0.0.1: only programs of this machine can connect. 0.0.0.0: everybody can. */
	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl")
	FString Host = TEXT("127.0.0.1");

	/** The command line's -UERLPort= comes first. 0: a free port, see the log. */
	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl")
	int32 Port = 7777;

	/** The command line's -UERLNumEnvs= comes first. */
	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl")
	int32 NumEnvs = 1;

	/** How many numbers an observation has. */
	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl")
	int32 ObservationSize = 1;

	/** How many numbers an action has; of a Discrete space one. */
	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl")
	int32 ActionSize = 1;

	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl")
	FUeRlSpace ActionSpace = FUeRlSpace::MakeBox(-1.0, 1.0);

	/** One space without a name, or parts that have names; empty: numbers without bounds. */
	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl")
	TArray<FUeRlSpace> ObservationSpace;

	/** Env i's first reset gets Seed + i where the trainer gives none; -1: none. -UERLSeed= comes first. */
	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl")
	int64 Seed = -1;

	/** Does HandleResetForEnv follow the seed that it gets? */
	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl")
	bool bSeeds = true;

	/** Does CalculateRewardForEnv say bTruncated where an episode ends by a time limit? */
	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl")
	bool bTruncation = true;

	/** Does CreateMaskForEnv say which choices of a discrete action space are legal? */
	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl")
	bool bMasks = false;

	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl")
	TArray<FUeRlParameter> Parameters;

	/** In lock-step with several envs it is Shared, whatever stands here. */
	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl")
	EUeRlChannel Channel = EUeRlChannel::Shared;

	/** Offer shared memory to a trainer on this machine. */
	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl")
	bool bSharedMemory = PLATFORM_LINUX != 0;

	/** The world stands still while the trainer thinks. False: it goes on, and a step takes two ticks or more. */
	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl|Time")
	bool bLockStep = true;

	/** Game time of a tick in lock-step is 1 / FixedFps seconds. 0, or -UseFixedTimeStep on the command line: as it is. */
	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl|Time", meta = (ClampMin = "0"))
	float FixedFps = 60.0f;

	/** Ticks that an action runs, IsActionRunningForEnv apart. */
	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl|Time", meta = (ClampMin = "1"))
	int32 ActionTicks = 1;

	/** Ticks between a reset and its observation, for bodies that have to settle. The other envs move, too. */
	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl|Time", meta = (ClampMin = "0"))
	int32 ResetTicks = 0;

	/**
	 * How long a tick waits for the trainer. Then the game is paused until it asks, and frames go by: windows and the
	 * editor stay alive. A world that cannot be paused (one without a player controller) goes on: set more there.
	 */
	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl|Time", meta = (ClampMin = "0"))
	float MaxWaitSeconds = 0.05f;

	/** Make the envs: called once, when Count is known and before a trainer can connect. */
	UFUNCTION(BlueprintNativeEvent, Category = "UeRl")
	void InitializeEnvironments(int32 Count);
	virtual void InitializeEnvironments_Implementation(int32 Count);

	/**
	 * In lock-step the world moves when each env has a request. Where some have none (a trainer that steps a part of the
	 * envs) it moves when no other one has come for so long.
	 */
	UPROPERTY(EditAnywhere, BlueprintReadWrite, Category = "UeRl|Time", meta = (ClampMin = "0"))
	float GatherSeconds = 0.01f;

	/** Begin a new episode. Seed: of the env's random numbers; -1: go on with those that it has. */
	UFUNCTION(BlueprintNativeEvent, Category = "UeRl")
	void HandleResetForEnv(int32 EnvId, int64 EpisodeSeed);
	virtual void HandleResetForEnv_Implementation(int32 EnvId, int64 EpisodeSeed);

	/** Take an action: called once, before the tick in which it begins. */
	UFUNCTION(BlueprintNativeEvent, Category = "UeRl")
	void HandleResponseActionsForEnv(int32 EnvId, const TArray<float>& Actions);
	virtual void HandleResponseActionsForEnv_Implementation(int32 EnvId, const TArray<float>& Actions);

	/** Does the action go on, when ActionTicks are over? */
	UFUNCTION(BlueprintNativeEvent, Category = "UeRl")
	bool IsActionRunningForEnv(int32 EnvId);
	virtual bool IsActionRunningForEnv_Implementation(int32 EnvId);

	/** Put ObservationSize numbers into State, which comes empty. */
	UFUNCTION(BlueprintNativeEvent, Category = "UeRl")
	void CreateStateForEnv(int32 EnvId, TArray<float>& State);
	virtual void CreateStateForEnv_Implementation(int32 EnvId, TArray<float>& State);

	/** The reward of the action that has ended. bDone: the episode is over; the reset comes from the trainer. */
	UFUNCTION(BlueprintNativeEvent, Category = "UeRl")
	float CalculateRewardForEnv(int32 EnvId, bool& bDone, bool& bTruncated);
	virtual float CalculateRewardForEnv_Implementation(int32 EnvId, bool& bDone, bool& bTruncated);

	/** One flag for each choice, false: illegal now. It comes empty; left empty, all are legal. */
	UFUNCTION(BlueprintNativeEvent, Category = "UeRl")
	void CreateMaskForEnv(int32 EnvId, TArray<bool>& Mask);
	virtual void CreateMaskForEnv_Implementation(int32 EnvId, TArray<bool>& Mask);

	UFUNCTION(BlueprintImplementableEvent, Category = "UeRl")
	void SessionBegan();

	UFUNCTION(BlueprintImplementableEvent, Category = "UeRl")
	void SessionEnded(const FString& Why);

	/** The value of a parameter now. */
	UFUNCTION(BlueprintPure, Category = "UeRl")
	double GetParameterForEnv(const FString& Name, int32 EnvId) const;

	/** Where trainers connect; 0: nowhere. */
	UFUNCTION(BlueprintPure, Category = "UeRl")
	int32 GetListeningPort() const;

	virtual void BeginPlay() override;
	virtual void EndPlay(const EEndPlayReason::Type EndPlayReason) override;

private:
	friend class FUeRlGame;

	TSharedPtr<struct FUeRlServer> Server;
	FDelegateHandle TickStart;
	bool bAsked = false;        // by the trainer that is served
	bool bWorldMoves = false;   // in this frame
	bool bHolding = false;      // the game is paused, by us
	bool bSetTimeStep = false;  // as fixed, by us
	bool bToldOfPause = false;  // in this session: the world cannot be paused

	void HandleWorldTickStart(UWorld* World, ELevelTick TickType, float DeltaSeconds);
	bool Listens(FUeRlServer& Serving);
	void WaitForAction(FUeRlServer& Serving);
	void Hold();
	void Release();
	void Joined();
	void Left(const FString& Why);
};
