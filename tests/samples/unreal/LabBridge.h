// A game with what the README's carts leave out. An env observes its position, and the steps since
// its reset, or the world's ticks since then.
#pragma once

#include "Engine/World.h"
#include "UeRlBridgeComponent.h"
#include "LabBridge.generated.h"

UCLASS()
class ULabBridge : public UUeRlBridgeComponent
{
	GENERATED_BODY()

public:
	ULabBridge()
	{
		ObservationSize = 2;
		ActionSpace = FUeRlSpace::MakeDiscrete(3);
		FUeRlSpace Part;
		Part.Name = TEXT("position");
		ObservationSpace.Add(Part);
		Part.Name = TEXT("ticks");
		Part.Low.Add(0.0);
		ObservationSpace.Add(Part);
		bMasks = true;
		FUeRlParameter Push;
		Push.Name = TEXT("push");
		Push.Value = 1.0;
		Push.Low = 0.0;
		Push.High = 10.0;
		Parameters.Add(Push);
	}

	bool bForgetsNumbers = false;  // gives one number too few, at the third step
	bool bWatchesWorld = false;
	TArray<double> Position;
	TArray<int32> Steps, Waits;
	TArray<int64> Began;

	virtual void InitializeEnvironments_Implementation(int32 Count) override
	{
		Position.Init(0.0, Count);
		Steps.Init(0, Count);
		Waits.Init(0, Count);
		Began.Init(0, Count);
	}
	virtual void HandleResetForEnv_Implementation(int32 EnvId, int64 EpisodeSeed) override
	{
		Position[EnvId] = EpisodeSeed < 0 ? EnvId : static_cast<double>(EpisodeSeed % 1000003);
		Began[EnvId] = GetWorld()->StandInTicks;
		Steps[EnvId] = 0;
	}
	virtual void HandleResponseActionsForEnv_Implementation(int32 EnvId, const TArray<float>& Actions) override
	{
		Position[EnvId] += static_cast<double>(Actions[0]) * GetParameterForEnv(TEXT("push"), EnvId);
		Steps[EnvId]++;
		Waits[EnvId] = EnvId == 1 ? 2 : 0;  // ticks that env 1's actions take besides
	}
	virtual bool IsActionRunningForEnv_Implementation(int32 EnvId) override { return Waits[EnvId]-- > 0; }
	virtual void CreateStateForEnv_Implementation(int32 EnvId, TArray<float>& State) override
	{
		State.Add(static_cast<float>(Position[EnvId]));
		if (!bForgetsNumbers || Steps[EnvId] < 3)
		{
			State.Add(static_cast<float>(bWatchesWorld ? GetWorld()->StandInTicks - Began[EnvId] : Steps[EnvId]));
		}
	}
	virtual float CalculateRewardForEnv_Implementation(int32 EnvId, bool& bDone, bool& bTruncated) override
	{
		bDone = false;
		bTruncated = Steps[EnvId] >= 50;
		return static_cast<float>(Position[EnvId]);
	}
	virtual void CreateMaskForEnv_Implementation(int32 EnvId, TArray<bool>& Mask) override
	{
		if (Steps[EnvId] % 2 == 1)
		{
			Mask.Init(true, 3);
			Mask[1] = false;
		}
	}
};
