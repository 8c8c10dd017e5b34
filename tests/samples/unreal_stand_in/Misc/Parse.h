#pragma once

#include "CoreMinimal.h"

struct FParse
{
	/** What stands behind `Match`; leaves `Value` alone where it does not occur. */
	static bool Value(const TCHAR* Stream, const TCHAR* Match, int64& Value)
	{
		const std::u16string Line(Stream);
		const std::size_t At = Line.find(Match);
		if (At == std::u16string::npos)
		{
			return false;
		}
		Value = std::atoll(StandIn::ToUtf8(Line.substr(At + std::u16string(Match).size())).c_str());
		return true;
	}
	static bool Value(const TCHAR* Stream, const TCHAR* Match, int32& Value)
	{
		int64 Wide = Value;
		const bool bFound = FParse::Value(Stream, Match, Wide);
		Value = static_cast<int32>(Wide);
		return bFound;
	}
};
