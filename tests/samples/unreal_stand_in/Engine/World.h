#pragma once

#include "Components/ActorComponent.h"
#include "GameFramework/Actor.h"

#include <functional>
#include <map>

class FStandInTickDelegate
{
public:
	template <class T>
	FDelegateHandle AddUObject(T* Object, void (T::*Method)(UWorld*, ELevelTick, float))
	{
		Bound[++Last] = [=](UWorld* World, ELevelTick Type, float Delta) { (Object->*Method)(World, Type, Delta); };
		return Last;
	}
	void Remove(FDelegateHandle Handle) { Bound.erase(Handle); }
	void Broadcast(UWorld* World, ELevelTick Type, float Delta)
	{
		const auto Now = Bound;
		for (const auto& One : Now)
		{
			One.second(World, Type, Delta);
		}
	}

private:
	std::map<FDelegateHandle, std::function<void(UWorld*, ELevelTick, float)>> Bound;
	FDelegateHandle Last = 0;
};

struct FWorldDelegates
{
	inline static FStandInTickDelegate OnWorldTickStart;
};

class UWorld : public UObject
{
public:
	bool bStandInPaused = false, bStandInHasPlayer = true;
	int64 StandInTicks = 0;  // of game time
	std::vector<UActorComponent*> StandInComponents;

	/** In the engine's order: first what is bound to the start, then the look at the pause, then everything else. */
	void Tick(ELevelTick Type, float Delta)
	{
		FWorldDelegates::OnWorldTickStart.Broadcast(this, Type, Delta);
		if (bStandInPaused)
		{
			return;
		}
		StandInTicks++;
		for (UActorComponent* Component : StandInComponents)
		{
			if (Component->PrimaryComponentTick.bCanEverTick)
			{
				Component->TickComponent(Delta, Type, &Component->PrimaryComponentTick);
			}
		}
	}

	template <class T>
	T* SpawnActor(UClass* Class, const FVector& Location, const FRotator&)
	{
		if (!Class)
		{
			return nullptr;
		}
		auto Actor = std::make_unique<T>();
		Actor->SetActorLocation(Location);
		T* Made = Actor.get();
		Spawned.push_back(std::move(Actor));
		return Made;
	}

private:
	std::vector<std::unique_ptr<AActor>> Spawned;
};
