// The one file of the module that has the code behind ue_rl_bridge.hpp, and with it the system's headers.
#include "CoreMinimal.h"

THIRD_PARTY_INCLUDES_START
#if PLATFORM_WINDOWS
#include "Windows/AllowWindowsPlatformTypes.h"
#endif
#define UE_RL_BRIDGE_IMPLEMENTATION
#include "ue_rl_bridge.hpp"
#if PLATFORM_WINDOWS
#include "Windows/HideWindowsPlatformTypes.h"
#endif
THIRD_PARTY_INCLUDES_END
