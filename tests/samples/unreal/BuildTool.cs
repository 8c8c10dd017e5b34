// The few types of Unreal's build tool that UeRlBridge.Build.cs uses. rules MODULE_FOLDER PLATFORM prints what it adds.
using System;
using System.Collections.Generic;

namespace UnrealBuildTool
{
	public enum UnrealTargetPlatform { Win64, Linux, Mac }

	public class ReadOnlyTargetRules
	{
		public UnrealTargetPlatform Platform;
	}

	public class ModuleRules
	{
		public enum PCHUsageMode { UseExplicitOrSharedPCHs }

		public static string StandInDirectory;
		public PCHUsageMode PCHUsage;
		public List<string> PublicDependencyModuleNames = new List<string>();
		public List<string> PrivateIncludePaths = new List<string>();
		public List<string> PublicSystemLibraries = new List<string>();
		public string ModuleDirectory { get { return StandInDirectory; } }

		public ModuleRules(ReadOnlyTargetRules target) { }
	}

	public static class Program
	{
		public static void Main(string[] words)
		{
			ModuleRules.StandInDirectory = words[0];
			var platform = (UnrealTargetPlatform)Enum.Parse(typeof(UnrealTargetPlatform), words[1]);
			var rules = new UeRlBridge(new ReadOnlyTargetRules { Platform = platform });
			foreach (string path in rules.PrivateIncludePaths) Console.WriteLine(path);
			foreach (string library in rules.PublicSystemLibraries) Console.WriteLine(library);
		}
	}
}
