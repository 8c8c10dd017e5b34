#pragma once

#include "Engine/World.h"

struct UGameplayStatics
{
	/** False: nobody is there who could pause. */
	static bool SetGamePaused(const UActorComponent* Context, bool bPaused)
	{
		UWorld& World = *Context->GetWorld();
		World.bStandInPaused = bPaused && World.bStandInHasPlayer;
		return World.bStandInHasPlayer;
	}
	static bool IsGamePaused(const UActorComponent* Context) { return Context->GetWorld()->bStandInPaused; }
};
