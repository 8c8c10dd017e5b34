#pragma once

#include "CoreMinimal.h"

struct FCommandLine
{
	inline static std::u16string StandInLine;
	static const TCHAR* Get() { return StandInLine.c_str(); }
};
