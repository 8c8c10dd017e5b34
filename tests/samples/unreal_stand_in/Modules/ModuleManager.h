#pragma once

class FDefaultModuleImpl
{
};

#define IMPLEMENT_MODULE(Class, Name) \
	extern Class StandInModule##Name; \
	Class StandInModule##Name;
