#include "UeRlBridgeComponent.h"

#include "CoreGlobals.h"
#include "Engine/World.h"
#include "HAL/PlatformTime.h"
#include "Kismet/GameplayStatics.h"
#include "Misc/App.h"
#include "Misc/CommandLine.h"
#include "Misc/Parse.h"

THIRD_PARTY_INCLUDES_START
#include "ue_rl_bridge.hpp"
THIRD_PARTY_INCLUDES_END

DEFINE_LOG_CATEGORY_STATIC(LogUeRl, Log, All);

/** Hands the trainer's requests on to the component. What takes ticks of the world is counted here. */
class FUeRlGame final : public ue_rl::MultiEnvBridge
{
public:
	FUeRlGame(UUeRlBridgeComponent& InOwner, const ue_rl::Spec& InSpec)
		: ue_rl::MultiEnvBridge(InSpec)
		, Owner(InOwner)
	{
		const int32 Count = static_cast<int32>(layout.envs);
		Began.Init(-1, Count);
		for (int32 EnvId = 0; EnvId < Count; EnvId++)
		{
			FirstSeeds.Add(Owner.Seed < 0 ? -1 : Owner.Seed + EnvId);
		}
	}

	int64 Ticks = 0;

	/** How many envs have a request that the world must move for. */
	int32 NumOpen() const { return Open; }

	/** Has an action begun since the world moved last? */
	bool HasNewAction() const { return LastAction == Ticks; }

	virtual void HandleResetForEnv(int EnvId, const ue_rl::Reset& Reset) override
	{
		Begin(EnvId);
		const int64 Own = FirstSeeds[EnvId];
		FirstSeeds[EnvId] = -1;
		Owner.HandleResetForEnv(EnvId, Reset.seed < 0 ? Own : static_cast<int64>(Reset.seed));
	}

	virtual void HandleResponseActionsForEnv(int EnvId, const float* Numbers) override
	{
		Begin(EnvId);
		LastAction = Ticks;
		Actions.SetNumUninitialized(spec.act_size);
		FMemory::Memcpy(Actions.GetData(), Numbers, spec.act_size * sizeof(float));
		Owner.HandleResponseActionsForEnv(EnvId, Actions);
	}

	virtual bool IsActionRunningForEnv(int EnvId) override
	{
		return Ticks - Began[EnvId] < FMath::Max(Owner.ActionTicks, 1) || Owner.IsActionRunningForEnv(EnvId);
	}

	/** Beside an action the world moves after a reset, too: observed is the state that the next action acts on. */
	virtual bool IsResetRunningForEnv(int EnvId) override
	{
		return Ticks - Began[EnvId] < FMath::Max(Owner.ResetTicks, LastAction == Began[EnvId] ? 1 : 0);
	}

	virtual void CreateStateForEnv(int EnvId, float* Observation) override
	{
		Open--;
		State.Reset();
		Owner.CreateStateForEnv(EnvId, State);
		if (State.Num() == spec.obs_size)
		{
			FMemory::Memcpy(Observation, State.GetData(), spec.obs_size * sizeof(float));
		}
		else
		{
			Fail("env " + std::to_string(EnvId) + ": CreateStateForEnv gave " + std::to_string(State.Num())
				+ " numbers, ObservationSize is " + std::to_string(spec.obs_size));
		}
	}

	virtual float CalculateRewardForEnv(int EnvId, bool& bDone, bool& bTruncated) override
	{
		return Owner.CalculateRewardForEnv(EnvId, bDone, bTruncated);
	}

	virtual void CreateMaskForEnv(int EnvId, std::uint8_t* Flags) override
	{
		Mask.Reset();
		Owner.CreateMaskForEnv(EnvId, Mask);
		const int32 Size = static_cast<int32>(layout.mask_size);
		if (Mask.Num() != 0 && Mask.Num() != Size)
		{
			Fail("env " + std::to_string(EnvId) + ": CreateMaskForEnv gave " + std::to_string(Mask.Num())
				+ " flags, the action space has " + std::to_string(Size) + " choices");
		}
		for (int32 Index = 0; Index < Size && Index < Mask.Num(); Index++)
		{
			Flags[Index] = Mask[Index] ? 1 : 0;
		}
	}

	virtual void SessionBegan() override { Owner.Joined(); }

	virtual void SessionEnded(const std::string& Why) override
	{
		Open = 0;
		Owner.Left(UTF8_TO_TCHAR(Why.c_str()));
	}

private:
	UUeRlBridgeComponent& Owner;
	TArray<int64> Began;       // of each env: the tick at which its action or reset began
	TArray<int64> FirstSeeds;  // -1: none, or used
	TArray<float> Actions, State;
	TArray<bool> Mask;
	int64 LastAction = -1;
	int32 Open = 0;

	void Begin(int EnvId)
	{
		Owner.bAsked = true;
		Began[EnvId] = Ticks;
		Open++;
	}
};

static std::string ToUtf8(const FString& Text)
{
	return std::string(TCHAR_TO_UTF8(*Text));
}

static ue_rl::Space SpaceOf(const FUeRlSpace& Given)
{
	const std::vector<int> Sizes(Given.Sizes.GetData(), Given.Sizes.GetData() + Given.Sizes.Num());
	const int First = Sizes.empty() ? 0 : Sizes[0];
	switch (Given.Kind)
	{
	case EUeRlSpace::Discrete:
		return ue_rl::Discrete(First);
	case EUeRlSpace::MultiDiscrete:
		return ue_rl::MultiDiscrete(std::vector<ue_rl::Choice>(Sizes.begin(), Sizes.end()));
	case EUeRlSpace::MultiBinary:
		return ue_rl::MultiBinary(First);
	default:
		break;
	}
	std::vector<ue_rl::Range> Ranges;
	constexpr double Infinity = std::numeric_limits<double>::infinity();
	const auto Bound = [](const TArray<double>& Bounds, int32 Index, double Without)
	{ return Bounds.Num() == 0 ? Without : Bounds[Index < Bounds.Num() ? Index : Bounds.Num() - 1]; };
	for (int32 Index = 0; Index < FMath::Max(FMath::Max(Given.Low.Num(), Given.High.Num()), 1); Index++)
	{
		Ranges.push_back({Bound(Given.Low, Index, -Infinity), Bound(Given.High, Index, Infinity)});
	}
	return ue_rl::Box(Ranges, Sizes);
}

static ue_rl::Space SpaceOf(const TArray<FUeRlSpace>& Parts)
{
	if (Parts.Num() == 0)
	{
		return {};
	}
	if (Parts.Num() == 1 && Parts[0].Name.IsEmpty())
	{
		return SpaceOf(Parts[0]);
	}
	std::vector<std::pair<std::string, ue_rl::Space>> Named;
	for (const FUeRlSpace& Part : Parts)
	{
		Named.emplace_back(ToUtf8(Part.Name), SpaceOf(Part));
	}
	return ue_rl::Dict(Named);
}

static ue_rl::Spec SpecOf(const UUeRlBridgeComponent& Component)
{
	static const ue_rl::Channel Channels[] = {ue_rl::Channel::Shared, ue_rl::Channel::PerEnv, ue_rl::Channel::Any};
	ue_rl::Spec Spec;
	Spec.obs_size = Component.ObservationSize;
	Spec.act_size = Component.ActionSize;
	Spec.num_envs = Component.NumEnvs;
	const bool bTogether = Component.bLockStep && Component.NumEnvs > 1;  // else the world's ticks depend on who is first
	Spec.channel = bTogether ? Channels[0] : Channels[static_cast<int32>(Component.Channel)];
	Spec.act_space = SpaceOf(Component.ActionSpace);
	Spec.obs_space = SpaceOf(Component.ObservationSpace);
	if (Component.bSeeds)
	{
		Spec.features.insert(ue_rl::Feature::Seed);
	}
	if (Component.bTruncation)
	{
		Spec.features.insert(ue_rl::Feature::Trunc);
	}
	if (Component.bMasks)
	{
		Spec.features.insert(ue_rl::Feature::Mask);
	}
	for (const FUeRlParameter& Parameter : Component.Parameters)
	{
		Spec.parameters.push_back({ToUtf8(Parameter.Name), Parameter.Value, Parameter.Low, Parameter.High});
	}
	return Spec;
}

static ue_rl::Options OptionsOf(const UUeRlBridgeComponent& Component)
{
	ue_rl::Options Options;
	Options.host = ToUtf8(Component.Host);
	Options.port = Component.Port;
	Options.shared_memory = Component.bSharedMemory;
	Options.log = [](const std::string& Line) { UE_LOG(LogUeRl, Warning, TEXT("%s"), UTF8_TO_TCHAR(Line.c_str())); };
	return Options;
}

struct FUeRlServer
{
	FUeRlGame Game;
	ue_rl::Server Server;
	double NextTry = 0.0;  // to listen

	explicit FUeRlServer(UUeRlBridgeComponent& Component)
		: Game(Component, SpecOf(Component))
		, Server(Game, OptionsOf(Component))
	{
	}
};

/** Those that play now, in whatever world. */
static TArray<const UUeRlBridgeComponent*> Playing;

void UUeRlBridgeComponent::BeginPlay()
{
	Super::BeginPlay();
	FParse::Value(FCommandLine::Get(), TEXT("UERLPort="), Port);
	FParse::Value(FCommandLine::Get(), TEXT("UERLNumEnvs="), NumEnvs);
	FParse::Value(FCommandLine::Get(), TEXT("UERLSeed="), Seed);
	const int32 Twin = Playing.IndexOfByPredicate(
		[&](const UUeRlBridgeComponent* Other) { return Port != 0 && Other->Port == Port; });
	if (Twin != INDEX_NONE)
	{
		UE_LOG(LogUeRl, Error, TEXT("%s: port %d is that of %s, too: give each component a Port of its own"),
			*GetPathName(), Port, *Playing[Twin]->GetPathName());
		return;
	}
	Playing.Add(this);
	InitializeEnvironments(FMath::Max(NumEnvs, 0));
	Server = MakeShared<FUeRlServer>(*this);
	if (!Listens(*Server) && !Server->Game.layout.problem.empty())
	{
		Server.Reset();
		return;
	}
	TickStart = FWorldDelegates::OnWorldTickStart.AddUObject(this, &UUeRlBridgeComponent::HandleWorldTickStart);
}

/** Tries to, now and then: the port may still be the last Play's, or an editor's that is about to end. */
bool UUeRlBridgeComponent::Listens(FUeRlServer& Serving)
{
	const double Now = FPlatformTime::Seconds();
	if (Serving.Server.port() != 0 || Now < Serving.NextTry)
	{
		return Serving.Server.port() != 0;
	}
	const bool bFirst = Serving.NextTry == 0.0;
	Serving.NextTry = Now + 0.5;
	if (Serving.Server.start())
	{
		UE_LOG(LogUeRl, Display, TEXT("listening on %s, port %d"), *Host, Serving.Server.port());
		return true;
	}
	if (bFirst)
	{
		UE_LOG(LogUeRl, Error, TEXT("%s"), UTF8_TO_TCHAR(Serving.Server.error().c_str()));
	}
	return false;
}

void UUeRlBridgeComponent::EndPlay(const EEndPlayReason::Type EndPlayReason)
{
	Playing.Remove(this);
	FWorldDelegates::OnWorldTickStart.Remove(TickStart);
	Server.Reset();
	Super::EndPlay(EndPlayReason);
}

void UUeRlBridgeComponent::HandleWorldTickStart(UWorld* World, ELevelTick, float)
{
	const TSharedPtr<FUeRlServer> Serving = Server;  // an event may destroy this component
	if (!Serving || World != GetWorld() || !Listens(*Serving))
	{
		return;
	}
	Serving->Game.Ticks += bWorldMoves ? 1 : 0;
	const bool bPaused = UGameplayStatics::IsGamePaused(this);
	bHolding &= bPaused;  // else somebody has ended our pause
	if (!bPaused || bHolding)  // while the game is paused by somebody else the trainer waits
	{
		Serving->Server.tick();
		if (bLockStep)
		{
			WaitForAction(*Serving);
		}
	}
	bWorldMoves = !UGameplayStatics::IsGamePaused(this);  // the engine looks when this has returned
}

/** Until the world has something to move for, or the trainer has left. */
void UUeRlBridgeComponent::WaitForAction(FUeRlServer& Serving)
{
	const double Deadline = FPlatformTime::Seconds() + MaxWaitSeconds;
	double Gathered = 0.0;
	int32 Known = 0;
	while (Server && bAsked)
	{
		const int32 Open = Serving.Game.NumOpen();
		const double Now = FPlatformTime::Seconds();
		if (Open == 0 && (Now > Deadline || IsEngineExitRequested()))
		{
			Hold();
			return;
		}
		if (Open != Known)
		{
			Known = Open;
			Gathered = Now + GatherSeconds;
		}
		if (Open > 0 && (Open == Serving.Game.spec.num_envs || !Serving.Game.HasNewAction() || Now > Gathered))
		{
			break;
		}
		Serving.Server.tick(5);
	}
	Release();
}

void UUeRlBridgeComponent::Hold()
{
	if (bHolding || IsEngineExitRequested())
	{
		return;
	}
	bHolding = UGameplayStatics::SetGamePaused(this, true);
	if (!bHolding && !bToldOfPause)
	{
		bToldOfPause = true;
		UE_LOG(LogUeRl, Warning,
			TEXT("the world cannot be paused, and goes on while the trainer thinks: set MaxWaitSeconds"));
	}
}

void UUeRlBridgeComponent::Release()
{
	if (bHolding)
	{
		UGameplayStatics::SetGamePaused(this, false);
	}
	bHolding = false;
}

/** Its first request comes in a later frame, whose length is fixed then. */
void UUeRlBridgeComponent::Joined()
{
	if (bLockStep && FixedFps > 0.0f && !FApp::UseFixedTimeStep())
	{
		FApp::SetFixedDeltaTime(1.0 / FixedFps);
		FApp::SetUseFixedTimeStep(true);
		bSetTimeStep = true;
	}
	SessionBegan();
}

void UUeRlBridgeComponent::Left(const FString& Why)
{
	UE_LOG(LogUeRl, Display, TEXT("the session is over: %s"), *Why);
	if (bSetTimeStep)
	{
		FApp::SetUseFixedTimeStep(false);
	}
	bSetTimeStep = false;
	bToldOfPause = false;
	bAsked = false;
	Release();
	SessionEnded(Why);
}

double UUeRlBridgeComponent::GetParameterForEnv(const FString& Name, int32 EnvId) const
{
	const int32 Index = Parameters.IndexOfByPredicate([&](const FUeRlParameter& One) { return One.Name == Name; });
	if (Index == INDEX_NONE)
	{
		UE_LOG(LogUeRl, Error, TEXT("there is no parameter %s"), *Name);
		return 0.0;
	}
	const bool bKnown = Server && EnvId >= 0 && EnvId < Server->Game.spec.num_envs;
	return bKnown ? Server->Game.GetParameter(Index, EnvId) : Parameters[Index].Value;
}

int32 UUeRlBridgeComponent::GetListeningPort() const
{
	return Server ? Server->Server.port() : 0;
}

void UUeRlBridgeComponent::InitializeEnvironments_Implementation(int32)
{
}

void UUeRlBridgeComponent::HandleResetForEnv_Implementation(int32, int64)
{
}

void UUeRlBridgeComponent::HandleResponseActionsForEnv_Implementation(int32, const TArray<float>&)
{
}

bool UUeRlBridgeComponent::IsActionRunningForEnv_Implementation(int32)
{
	return false;
}

void UUeRlBridgeComponent::CreateStateForEnv_Implementation(int32, TArray<float>&)
{
}

float UUeRlBridgeComponent::CalculateRewardForEnv_Implementation(int32, bool&, bool&)
{
	return 0.0f;
}

void UUeRlBridgeComponent::CreateMaskForEnv_Implementation(int32, TArray<bool>&)
{
}
