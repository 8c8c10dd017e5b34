# An overlay port: vcpkg install ue-rl --overlay-ports=samples/cpp/vcpkg
# Written from vcpkg's documentation and not run.
vcpkg_cmake_configure(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/..")
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME ue_rl CONFIG_PATH share/ue_rl)
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug" "${CURRENT_PACKAGES_DIR}/lib")
vcpkg_install_copyright(FILE_LIST "${CMAKE_CURRENT_LIST_DIR}/../../../LICENSE")
