// Plays a world with one component, and prints "PORT n".
//
//   host carts|lab [free] [noplayer] [forgets] [reset-ticks] [action-ticks] [any]
//        [patient] [watch] [bad-space] [no-class] [twin] [waits] [-UERLNumEnvs=N] ..
//
// twin: another component with the same port plays, too. waits: until the port can be listened on.
//
// Frames follow each other without a pause where the time step is fixed; else one comes in a millisecond.
#include "CartBridge.h"
#include "CoreGlobals.h"
#include "Engine/World.h"
#include "LabBridge.h"
#include "Misc/App.h"
#include "Misc/CommandLine.h"

#include <chrono>
#include <csignal>
#include <thread>

static int Play(UUeRlBridgeComponent& Component, UWorld& World, bool bWaits)
{
	Component.StandInWorld = &World;
	World.StandInComponents.push_back(&Component);
	Component.BeginPlay();
	while (bWaits && Component.GetListeningPort() == 0 && !IsEngineExitRequested())
	{
		World.Tick(LEVELTICK_All, 0.001f);
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	}
	if (Component.GetListeningPort() == 0)
	{
		return 1;
	}
	std::printf("PORT %d\n", Component.GetListeningPort());
	std::fflush(stdout);
	while (!IsEngineExitRequested())
	{
		if (!FApp::UseFixedTimeStep())
		{
			std::this_thread::sleep_for(std::chrono::milliseconds(1));
		}
		World.Tick(LEVELTICK_All, static_cast<float>(FApp::UseFixedTimeStep() ? FApp::GetFixedDeltaTime() : 0.001));
	}
	Component.EndPlay(EEndPlayReason::Quit);
	std::fprintf(stderr, "TICKS %d PAUSED %d\n", static_cast<int32>(World.StandInTicks), World.bStandInPaused ? 1 : 0);
	return 0;
}

int main(int Count, char** Words)
{
	UWorld World;
	UCartBridge Carts;
	ULabBridge Lab;
	const bool bLab = std::string(Words[1]) == "lab";
	UUeRlBridgeComponent& Component = bLab ? static_cast<UUeRlBridgeComponent&>(Lab) : Carts;
	Component.Port = 0;
	UClass Mesh;
	Carts.CartClass = &Mesh;
	bool bTwin = false, bWaits = false;
	for (int Index = 2; Index < Count; Index++)
	{
		const std::string Word = Words[Index];
		Component.bLockStep &= Word != "free";
		World.bStandInHasPlayer &= Word != "noplayer";
		Lab.bWatchesWorld |= Word == "watch";
		Lab.bForgetsNumbers |= Word == "forgets";
		Carts.CartClass = Word == "no-class" ? nullptr : Carts.CartClass;
		bTwin |= Word == "twin";
		bWaits |= Word == "waits";
		Component.ResetTicks += Word == "reset-ticks" ? 2 : 0;
		Component.ActionTicks += Word == "action-ticks" ? 3 : 0;
		Component.Channel = Word == "any" ? EUeRlChannel::Any : Component.Channel;
		Component.GatherSeconds = Word == "patient" ? 0.2f : Component.GatherSeconds;  // for a busy machine
		Component.ActionSpace = Word == "bad-space" ? FUeRlSpace::MakeDiscrete(0) : Component.ActionSpace;
		FCommandLine::StandInLine += StandIn::ToUtf16((" " + Word).c_str());
	}
	std::signal(SIGTERM, [](int) { GStandInExitRequested = true; });
	Carts.StandInName = TEXT("Level.Carts");
	Lab.StandInName = TEXT("Level.Lab");
	UUeRlBridgeComponent& Other = bLab ? static_cast<UUeRlBridgeComponent&>(Carts) : Lab;
	if (bTwin)
	{
		Other.StandInWorld = &World;
		Other.BeginPlay();
	}
	const int Result = Play(Component, World, bWaits);
	if (bTwin)
	{
		Other.EndPlay(EEndPlayReason::Quit);
	}
	return Result;
}
