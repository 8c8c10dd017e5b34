using System.IO;
using UnrealBuildTool;

public class UeRlBridge : ModuleRules
{
	public UeRlBridge(ReadOnlyTargetRules Target) : base(Target)
	{
		PCHUsage = PCHUsageMode.UseExplicitOrSharedPCHs;
		PublicDependencyModuleNames.AddRange(new[] { "Core", "CoreUObject", "Engine" });

		// A copy of samples/cpp/ue_rl_bridge.hpp, which needs neither exceptions nor RTTI.
		PrivateIncludePaths.Add(Path.GetFullPath(Path.Combine(ModuleDirectory, "..", "ThirdParty", "ue_rl")));
		if (Target.Platform == UnrealTargetPlatform.Win64)
		{
			PublicSystemLibraries.Add("ws2_32.lib");
		}
		else if (Target.Platform == UnrealTargetPlatform.Linux)
		{
			PublicSystemLibraries.Add("rt");
		}
	}
}
