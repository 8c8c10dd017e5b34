#pragma once

#include "CoreMinimal.h"
#include "Engine/EngineBaseTypes.h"

struct FActorComponentTickFunction
{
	bool bCanEverTick = false;
};

class UActorComponent : public UObject
{
public:
	FActorComponentTickFunction PrimaryComponentTick;
	UWorld* StandInWorld = nullptr;

	UWorld* GetWorld() const { return StandInWorld; }
	virtual void BeginPlay() {}
	virtual void EndPlay(const EEndPlayReason::Type) {}
	virtual void TickComponent(float, ELevelTick, FActorComponentTickFunction*) {}
};
