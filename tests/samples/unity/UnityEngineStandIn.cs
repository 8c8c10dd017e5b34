// The few types of Unity that UeRlBehaviour.cs uses, with the order of Unity's loop: FixedUpdate, a physics tick, Update.

using System;
using System.Collections.Generic;

namespace UnityEngine
{
    [AttributeUsage(AttributeTargets.Class)]
    public sealed class DefaultExecutionOrder : Attribute
    {
        public DefaultExecutionOrder(int order) { }
    }

    [AttributeUsage(AttributeTargets.Field)]
    public sealed class SerializeField : Attribute { }

    public class MonoBehaviour { }

    public static class Input
    {
        public static float GetAxis(string axisName) { return 0; }
    }

    public static class LayerMask
    {
        public static int GetMask(params string[] layerNames) { return 1; }
    }

    public struct Rect
    {
        public Rect(float x, float y, float width, float height) { }
    }

    public static class Screen
    {
        public static int width = 640, height = 480;
    }

    public static class GUI
    {
        public static string Shown;

        public static void Label(Rect position, string text)
        {
            Shown = text;
        }
    }

    public static class Debug
    {
        public static void Log(object message)
        {
            Console.Error.WriteLine(message);
        }
    }

    public static class Application
    {
        public static bool runInBackground { get; set; }
        public static int targetFrameRate { get; set; }
    }

    public static class QualitySettings
    {
        public static int vSyncCount { get; set; }
    }

    public static class Time
    {
        public static float fixedDeltaTime = 0.02f, timeScale = 1, captureDeltaTime;
    }
}
