#pragma once

enum ELevelTick
{
	LEVELTICK_TimeOnly,
	LEVELTICK_ViewportsOnly,
	LEVELTICK_All,
	LEVELTICK_PauseTick,
};

namespace EEndPlayReason
{
	enum Type
	{
		Destroyed,
		Quit,
	};
}
